"""`serve-bench profile`: py-spy on Serve processes, and the difference of two profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from serve_bench.observing.processes import ServeProcess
    from serve_bench.runner.recording import Recipe, Wish

DURATION_S, RATE = 30.0, 100

profile = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@profile.callback()
def record(
    context: typer.Context,
    pid: Annotated[int | None, typer.Option(help="A process, by its pid.")] = None,
    address: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a Ray cluster: all its nodes, not this machine."),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="Only this node: its IP, hostname, or how its id begins.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="proxy, replica, controller, haproxy or all."),
    ] = None,
    app: Annotated[str | None, typer.Option(help="Only replicas of this application.")] = None,
    deployment: Annotated[
        str | None, typer.Option(help="Only replicas of this deployment.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="A recipe of profiles/; other flags win over it.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the Serve processes.")] = False,
    dump: Annotated[bool, typer.Option("--dump", help="Print the stacks now.")] = False,
    duration: Annotated[float | None, typer.Option(help="Seconds to record [30].")] = None,
    rate: Annotated[int | None, typer.Option(help="Samples a second [100].")] = None,
    native: Annotated[bool, typer.Option("--native", help="Frames of C and C++ too.")] = False,
    gil: Annotated[bool, typer.Option("--gil", help="Only threads that hold the GIL.")] = False,
    idle: Annotated[bool, typer.Option("--idle", help="Threads that wait, too.")] = False,
    threads: Annotated[bool, typer.Option("--threads", help="Each thread by itself.")] = False,
    subprocesses: Annotated[
        bool, typer.Option("--subprocesses", help="Its child processes too.")
    ] = False,
    nonblocking: Annotated[
        bool, typer.Option("--nonblocking", help="Do not stop it to sample: cheaper, less exact.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file [by role, pid].")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="flamegraph, speedscope, chrometrace or raw."),
    ] = None,
) -> int | None:
    """Record flamegraphs of proxy, replicas or any Python process with py-spy.

    Of this machine; with --address, of all nodes of a Ray cluster.
    A flamegraph (-o x.svg, or x.html with its tables) comes with the raw stacks beside it.

    Example: serve-bench profile --target replica --duration 10 -o replica.svg
    """
    if context.invoked_subcommand is not None:
        return None
    from serve_bench.cli.record import print_stacks, record_haproxy
    from serve_bench.cli.record import record as record_processes
    from serve_bench.core.errors import BadInput
    from serve_bench.runner.recording import FLAGS

    if node is not None and address is None:
        raise BadInput("--node: it names a node of the cluster at --address HOST:PORT")
    if list_:
        return _list(address, node)
    if recipe is not None and pid is None and target is None:
        target = _recipe(recipe).target
    if (pid is None) == (target is None):
        raise BadInput(
            "name what to profile: --pid PID, --target ROLE or --recipe NAME (or --list)"
        )
    given = dict(zip(FLAGS, (native, gil, idle, threads, subprocesses, nonblocking), strict=True))
    wish = _wish(recipe, duration, rate, given, out, format)
    if out is not None and (out.is_dir() or not out.name):
        raise BadInput(f"-o: {out} is a folder; it takes a file")
    if address is not None:
        from serve_bench.cli import profile_nodes

        aim = profile_nodes.Aim(address, node, pid, target, app, deployment)
        profile_nodes.check(aim)
        if dump:
            return profile_nodes.dump_on_nodes(aim, native)
        return profile_nodes.record_on_nodes(aim, wish)
    processes = _processes(pid, target, app, deployment)
    if dump:
        return print_stacks(processes, native)
    if target == "haproxy":
        return record_haproxy(processes, wish)
    return record_processes(processes, wish)


@profile.command()
def diff(
    a: Annotated[str, typer.Argument(help="Raw stacks, a folder of them, or with --run a cell.")],
    b: Annotated[str, typer.Argument(help="The other.")],
    run: Annotated[Path | None, typer.Option(help="Folder of the run that A and B are of.")] = None,
    target: Annotated[
        str, typer.Option(help="Of folders, the profiles of this: proxy, replica, controller.")
    ] = "replica",
    idle: Annotated[bool, typer.Option("--idle", help="Count idle stacks too.")] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Draw the difference into this HTML file.")
    ] = None,
) -> int:
    """Set two profiles against each other: what grew, what shrank, in shares of their samples.

    Example: serve-bench profile diff --run results/x default optimized -o diff.html
    """
    from serve_bench.cli.record import write
    from serve_bench.observing.processes import TARGETS
    from serve_bench.report.flamegraph import diff_html, difference_of, difference_text, reading_of
    from serve_bench.runner.recording import find_stacks, layer_rules, one_of

    roles = TARGETS[one_of(target, ("proxy", "replica", "controller"), "--target")]
    rules = layer_rules()
    readings = []
    for word in (a, b):
        stacks, files = find_stacks(word, run, roles)
        name = word if len(files) == 1 else f"{word} ({len(files)} processes)"
        readings.append(reading_of(name, stacks, rules, keep_idle=idle))
    difference = difference_of(readings[0], readings[1], rules)
    typer.echo(difference_text(difference), nl=False)
    if out is not None:
        write(out, diff_html(difference))
        typer.echo(f"wrote {out}")
    return 0


# -------------------------------------------------------------------------------- choosing


def _list(address: str | None, node: str | None) -> int:
    if address is None:
        from serve_bench.cli.record import serve_list

        return serve_list()
    from serve_bench.cli import profile_nodes

    aim = profile_nodes.Aim(address, node)
    profile_nodes.check(aim, listed=True)
    return profile_nodes.list_nodes(aim)


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


def _wish(
    recipe: str | None,
    duration: float | None,
    rate: int | None,
    given: dict[str, bool],
    out: Path | None,
    format: str | None,
) -> Wish:
    """What to record: flags, then the recipe, then the defaults."""
    from serve_bench.observing.profiler import Options
    from serve_bench.runner import recording as recipes
    from serve_bench.runner.recording import Wish

    found = None if recipe is None else _recipe(recipe)
    seconds = (
        recipes.duration(duration, "--duration")
        if duration is not None
        else (found.duration_s if found else None) or DURATION_S
    )
    samples = (
        recipes.sample_rate(rate, "--rate")
        if rate is not None
        else (found.rate if found else None) or RATE
    )
    chosen = format or (found.format if found else None) or _format_of(out)
    flags = {name: on or (found is not None and name in found.flags) for name, on in given.items()}
    return Wish(
        seconds,
        Options(samples, **flags),
        recipes.one_of(chosen, recipes.RECIPE_FORMATS, "--format"),
        out,
    )


def _format_of(out: Path | None) -> str:
    """What the name of the file asks for."""
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
    """The processes that are meant. BadInput when there is none, or one that cannot be."""
    from serve_bench.core.errors import BadInput
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
    found = chosen(serve_processes(), target, app, deployment)
    if not found:
        narrowed = "".join(
            f" of {name} {value}"
            for name, value in (("app", app), ("deployment", deployment))
            if value is not None
        )
        raise BadInput(
            f"--target {target}: no such Serve process{narrowed} on this machine (--list)"
        )
    if target != "haproxy":
        py_spy()
        for one in found:
            check_process(one.pid)
    return found
