"""`serve-bench profile`: py-spy on Serve processes, and what differs between two profiles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from serve_bench.cli.command import Options, argument, command, flag
from serve_bench.cli.panels import PanelCommand, PanelGroup
from serve_bench.core.errors import BadInput
from serve_bench.spec.content import Content
from serve_bench.spec.profile import ProfileSpec, read_profile
from serve_bench.store.files import read_toml, shipped

if TYPE_CHECKING:
    from serve_bench.observing.processes import ServeProcess

profile = typer.Typer(cls=PanelGroup, invoke_without_command=True, rich_markup_mode=None)


class ProfileOptions(Options):
    spec = ProfileSpec
    order = "context pid target app deployment recipe list_ dump duration rate native gil idle out"

    context: typer.Context
    pid: int | None = flag(None, "Profile the process with this pid.")
    app: str | None = flag(None, "Profile replicas of this application alone.")
    deployment: str | None = flag(None, "Profile replicas of this deployment alone.")
    recipe: str | None = flag(None, "Use a recipe of profiles/; other flags override it.")
    list_: bool = flag(False, "Show the Serve processes.", "--list")
    dump: bool = flag(False, "Print the stacks now.")
    out: Path | None = flag(
        None, "Flamegraph to write, .svg [named by role and pid].", "-o", "--out", metavar="FILE"
    )


@profile.callback()
@command(ProfileOptions)
def record(options: ProfileOptions) -> int | None:
    """Record flamegraphs of Serve or any process with py-spy.

    Of proxy, replicas, or any Python process of this machine. The raw stacks are written next to
    the flamegraph; a line of each layer and function is printed.

    Example: serve-bench profile --target replica --duration 10 -o replica.svg
    """
    if options.context.invoked_subcommand is not None:
        return None
    from serve_bench.cli.profile_run import list_processes, print_stacks, record_processes
    from serve_bench.observing.profiler import SpyOptions
    from serve_bench.runner.recording import Wish

    pid, out = options.pid, options.out
    if options.list_:
        if given := options.changed(("list_",)):
            raise BadInput(f"{given[0]}: does not go with --list, which shows every Serve process")
        return list_processes()
    spec = _read(options)
    target = spec.target if pid is None or "target" in options.texts else None
    if (pid is None) == (target is None):
        raise BadInput(
            "name what to profile: --pid PID, --target ROLE or --recipe NAME (or --list)"
        )
    if out is not None and (out.is_dir() or not out.name):
        raise BadInput(f"-o: {out} is a folder; it takes a file")
    if out is not None and out.suffix != ".svg":
        raise BadInput(f"-o: {out} is not allowed; it takes a file that ends in .svg")
    processes = _processes(pid, target, options.app, options.deployment)
    if options.dump:
        return print_stacks(processes, spec.native)
    spy = SpyOptions(spec.rate, spec.native, spec.gil, spec.idle)
    return record_processes(processes, Wish(spec.duration, spy, out))


class DiffOptions(Options):
    order = "a b run target idle"

    a: str = argument("Raw stacks, a folder of them, or a cell with --run.", metavar="A")
    b: str = argument("The same, which is compared with A.", metavar="B")
    run: Path | None = flag(None, "Folder of the run that holds A and B.")
    target: Literal["proxy", "replica", "controller"] = flag(
        "replica", "Role whose profiles are read from folders: proxy, replica, controller."
    )
    idle: bool = flag(False, "Count idle stacks too.")


@profile.command(cls=PanelCommand)
@command(DiffOptions)
def diff(options: DiffOptions) -> int:
    """Compare two profiles: what grew and what shrank.

    Figures are shares of the samples of each.

    Example: serve-bench profile diff --run results/x default optimized
    """
    from serve_bench.observing.processes import TARGETS
    from serve_bench.report.profile_text import difference_text
    from serve_bench.runner.recording import find_stacks

    roles = TARGETS[options.target]
    profiles = []
    for word in (options.a, options.b):
        stacks, files = find_stacks(word, options.run, roles)
        name = word if len(files) == 1 else f"{word} ({len(files)} processes)"
        profiles.append((name, stacks))
    typer.echo(difference_text(profiles[0], profiles[1], options.idle), nl=False)
    return 0


def _read(options: ProfileOptions) -> ProfileSpec:
    """What to record: flags, then the recipe, then the defaults."""
    name, content = options.recipe, Content("profile")
    if name is not None:
        folder = shipped("profiles")
        file = Path(name) if name.endswith(".toml") or "/" in name else folder / f"{name}.toml"
        if not file.exists():
            names = ", ".join(sorted(recipe.stem for recipe in folder.glob("*.toml")))
            raise BadInput(f"--recipe: no {name!r}; a path, or one of: {names}")
        content = Content(file.name, read_toml(file))
    return read_profile(ProfileSpec.add_flags(content, options.texts))


def _processes(
    pid: int | None, target: str | None, app: str | None, deployment: str | None
) -> list[ServeProcess]:
    """The chosen processes. Raises BadInput where there is none, or one cannot be recorded."""
    from serve_bench.observing.processes import ServeProcess, chosen, serve_processes
    from serve_bench.observing.profiler import check_process, py_spy

    if pid is not None:
        check_process(pid)
        py_spy()
        known = {one.pid: one for one in serve_processes()}
        return [known.get(pid) or ServeProcess(pid, "process", "", "")]
    assert target is not None
    processes = chosen(serve_processes(), target, app, deployment)
    if not processes:
        limits = "".join(
            f" of {name} {value}"
            for name, value in (("app", app), ("deployment", deployment))
            if value is not None
        )
        raise BadInput(f"--target {target}: no such Serve process{limits} on this machine (--list)")
    py_spy()
    for process in processes:
        check_process(process.pid)
    return processes
