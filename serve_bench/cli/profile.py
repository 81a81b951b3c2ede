"""`serve-bench profile`: py-spy on Serve processes, and the difference of two profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from serve_bench.cli.command import Options, argument, command, flag
from serve_bench.cli.panels import PanelCommand, PanelGroup

if TYPE_CHECKING:
    from serve_bench.observing.processes import ServeProcess
    from serve_bench.runner.recording import Recipe, Wish

DURATION_S, RATE = 30.0, 100

#: Flags of py-spy that a recipe may set too.
PY_SPY = ("native", "gil", "idle", "threads", "subprocesses", "nonblocking")

profile = typer.Typer(cls=PanelGroup, invoke_without_command=True, rich_markup_mode=None)


class ProfileOptions(Options):
    """The options of `profile`."""

    order = (
        *("context", "pid", "address", "node", "target", "app", "deployment", "recipe", "list_"),
        *("dump", "duration", "rate", *PY_SPY, "out", "format"),
    )

    context: typer.Context
    pid: int | None = flag(None, "Profile the process with this pid.")
    address: str | None = flag(None, "Profile all nodes of this Ray cluster, not this machine.")
    node: str | None = flag(None, "Profile one node: its IP, hostname or the start of its id.")
    target: str | None = flag(None, "Roles: proxy, replica, controller, haproxy or all.")
    app: str | None = flag(None, "Profile replicas of this application alone.")
    deployment: str | None = flag(None, "Profile replicas of this deployment alone.")
    recipe: str | None = flag(None, "Use a recipe of profiles/; other flags override it.")
    list_: bool = flag(False, "Show the Serve processes.", "--list")
    dump: bool = flag(False, "Print the stacks now.")
    duration: float | None = flag(None, "Seconds to record [30].")
    rate: int | None = flag(None, "Samples a second [100].")
    native: bool = flag(False, "Show frames of C and C++ too.")
    gil: bool = flag(False, "Count threads that hold the GIL alone.")
    idle: bool = flag(False, "Count threads that wait, too.")
    threads: bool = flag(False, "Show each thread by itself.")
    subprocesses: bool = flag(False, "Profile child processes too.")
    nonblocking: bool = flag(False, "Do not stop the process to sample: cheaper, less exact.")
    out: Path | None = flag(
        None, "File to write [named by role and pid].", "-o", "--out", metavar="FILE"
    )
    format: str | None = flag(
        None, "Form: flamegraph, speedscope, chrometrace or raw.", "--format", "-f"
    )


@profile.callback(rich_help_panel="Look inside")
@command(ProfileOptions)
def record(options: ProfileOptions) -> int | None:
    """Record flamegraphs of Serve or any process with py-spy.

    Of proxy, replicas or a process of this machine; with --address, of all nodes of a Ray cluster.
    The raw stacks are written next to the flamegraph (-o x.svg, or x.html with tables).

    Example: serve-bench profile --target replica --duration 10 -o replica.svg
    """
    if options.context.invoked_subcommand is not None:
        return None
    from serve_bench.cli import profile_nodes
    from serve_bench.cli.profile_run import (
        print_stacks,
        record_haproxy,
        record_processes,
        serve_list,
    )
    from serve_bench.core.errors import BadInput

    pid, target, address, out = options.pid, options.target, options.address, options.out
    if options.node is not None and address is None:
        raise BadInput("--node: it names a node of the cluster at --address HOST:PORT")
    if options.list_:
        _check_list(options)
        return serve_list() if address is None else profile_nodes.list_nodes(address, options.node)
    if options.recipe is not None and pid is None and target is None:
        target = _recipe(options.recipe).target
    if (pid is None) == (target is None):
        raise BadInput(
            "name what to profile: --pid PID, --target ROLE or --recipe NAME (or --list)"
        )
    wish = _wish(options)
    if out is not None and (out.is_dir() or not out.name):
        raise BadInput(f"-o: {out} is a folder; it takes a file")
    if address is not None:
        aim = profile_nodes.Aim(address, options.node, pid, target, options.app, options.deployment)
        profile_nodes.check(aim)
        if options.dump:
            return profile_nodes.dump_on_nodes(aim, options.native)
        return profile_nodes.record_on_nodes(aim, wish)
    processes = _processes(pid, target, options.app, options.deployment)
    if options.dump:
        return print_stacks(processes, options.native)
    if target == "haproxy":
        return record_haproxy(processes, wish)
    return record_processes(processes, wish)


class DiffOptions(Options):
    """The options of `profile diff`."""

    order = ("a", "b", "run", "target", "idle", "out")

    a: str = argument("Raw stacks, a folder of them, or a cell with --run.", metavar="A")
    b: str = argument("The same, which is compared with A.", metavar="B")
    run: Path | None = flag(None, "Folder of the run that holds A and B.")
    target: str = flag(
        "replica", "Role whose profiles are read from folders: proxy, replica, controller."
    )
    idle: bool = flag(False, "Count idle stacks too.")
    out: Path | None = flag(
        None, "Draw the difference into this HTML file.", "-o", "--out", metavar="FILE"
    )


@profile.command(cls=PanelCommand)
@command(DiffOptions)
def diff(options: DiffOptions) -> int:
    """Compare two profiles: what grew and what shrank.

    Figures are shares of the samples of each.

    Example: serve-bench profile diff --run results/x default optimized -o diff.html
    """
    from serve_bench.observing.processes import TARGETS
    from serve_bench.report.flamegraph import diff_html, difference_of, difference_text, reading_of
    from serve_bench.runner.recording import find_stacks, layer_rules, one_of
    from serve_bench.store.files import write_output

    roles = TARGETS[one_of(options.target, ("proxy", "replica", "controller"), "--target")]
    rules = layer_rules()
    readings = []
    for word in (options.a, options.b):
        stacks, files = find_stacks(word, options.run, roles)
        name = word if len(files) == 1 else f"{word} ({len(files)} processes)"
        readings.append(reading_of(name, stacks, rules, keep_idle=options.idle))
    difference = difference_of(readings[0], readings[1], rules)
    typer.echo(difference_text(difference), nl=False)
    if options.out is not None:
        write_output(options.out, diff_html(difference))
        typer.echo(f"wrote {options.out}")
    return 0


# -------------------------------------------------------------------------------- choosing


def _check_list(options: ProfileOptions) -> None:
    """BadInput where another flag stands beside --list, which shows every process: it would have no
    effect, whatever its value."""
    from serve_bench.core.errors import BadInput

    for name in options.order:
        value = getattr(options, name)
        set_ = value is not None and value is not False
        if set_ and name not in ("context", "address", "node", "list_"):
            raise BadInput(
                f"--{name}: does not go with --list, which shows every Serve process and takes "
                "--address and --node alone"
            )


def _recipe(name: str) -> Recipe:
    from serve_bench.core.errors import BadInput
    from serve_bench.runner.recording import read_recipe
    from serve_bench.store.files import read_toml, shipped

    folder = shipped("profiles")
    file = Path(name) if name.endswith(".toml") or "/" in name else folder / f"{name}.toml"
    if not file.exists():
        names = ", ".join(sorted(one.stem for one in folder.glob("*.toml")))
        raise BadInput(f"--recipe: no {name!r}; a path, or one of: {names}")
    return read_recipe(read_toml(file), file.name)


def _wish(options: ProfileOptions) -> Wish:
    """What to record: flags, then the recipe, then the defaults."""
    from serve_bench.observing.profiler import SpyOptions
    from serve_bench.runner import recording as recipes

    recipe = None if options.recipe is None else _recipe(options.recipe)
    seconds = (recipe.duration_s if recipe else None) or DURATION_S
    if options.duration is not None:
        seconds = recipes.duration(options.duration, "--duration")
    samples = (recipe.rate if recipe else None) or RATE
    if options.rate is not None:
        samples = recipes.sample_rate(options.rate, "--rate")
    format = options.format or (recipe.format if recipe else None) or _format_of(options.out)
    flags = {
        name: getattr(options, name) or (recipe is not None and name in recipe.flags)
        for name in PY_SPY
    }
    return recipes.Wish(
        seconds,
        SpyOptions(samples, **flags),
        recipes.one_of(format, recipes.RECIPE_FORMATS, "--format"),
        options.out,
    )


def _format_of(out: Path | None) -> str:
    """The format that the name of the file stands for."""
    if out is not None:
        for ending, format in ((".speedscope.json", "speedscope"), (".json", "chrometrace")):
            if out.name.endswith(ending):
                return format
        if out.suffix in (".txt", ".raw"):
            return "raw"
    return "flamegraph"


def _processes(
    pid: int | None, target: str | None, app: str | None, deployment: str | None
) -> list[ServeProcess]:
    """The chosen processes. Raises BadInput where there is none, or one cannot be recorded."""
    from serve_bench.cli.profile_run import no_process
    from serve_bench.observing.processes import TARGETS, ServeProcess, chosen, serve_processes
    from serve_bench.observing.profiler import check_process, py_spy
    from serve_bench.runner.recording import one_of

    if pid is not None:
        check_process(pid)
        py_spy()
        known = {one.pid: one for one in serve_processes()}
        return [known.get(pid) or ServeProcess(pid, "process", "", "")]
    assert target is not None
    one_of(target, tuple(TARGETS), "--target")
    processes = chosen(serve_processes(), target, app, deployment)
    if not processes:
        raise no_process(target, app, deployment, "this machine")
    if target != "haproxy":
        py_spy()
        for one in processes:
            check_process(one.pid)
    return processes
