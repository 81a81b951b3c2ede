"""`serve-bench profile`: py-spy on Serve processes, and what differs between two profiles."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import typer

from serve_bench.analysis.stacks import merged
from serve_bench.cli import INTERRUPTED, print_note
from serve_bench.cli.machine import DiffOptions, ProfileOptions
from serve_bench.cli.progress import Display
from serve_bench.cli.sitting import run_mark, signals
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput, RunFailed, visible
from serve_bench.core.figures import counted
from serve_bench.observing.processes import (
    TARGETS,
    InUse,
    ServeProcess,
    chosen,
    in_use,
    serve_processes,
)
from serve_bench.observing.profiler import SpyOptions, check_process, dump, py_spy
from serve_bench.report.columns import table_blocks
from serve_bench.report.flamegraph import flame_svg
from serve_bench.report.profile_text import difference_text, profile_text
from serve_bench.report.terminal import terminal
from serve_bench.runner.recording import Wish, by_role, find_stacks, raw_beside, record_all
from serve_bench.serving.strays import marks
from serve_bench.spec.profile import ProfileSpec, read_profile
from serve_bench.store.files import read_toml, shipped, write_output


def _read_spec(options: ProfileOptions) -> ProfileSpec:
    """Read what to record: flags, then the recipe, then the defaults."""
    name, content = options.recipe, Content("profile")
    if name is not None:
        folder = shipped("profiles")
        file = Path(name) if name.endswith(".toml") or "/" in name else folder / f"{name}.toml"
        if not file.exists():
            names = ", ".join(sorted(recipe.stem for recipe in folder.glob("*.toml")))
            raise BadInput(f"--recipe: no {name!r}; a path, or one of: {names}")
        content = Content(file.name, read_toml(file))
    return read_profile(ProfileSpec.add_flags(content, options.given))


def _choose_processes(
    pid: int | None, target: str | None, app: str | None, deployment: str | None
) -> list[ServeProcess]:
    """Choose the processes. Raises BadInput where there is none, or one cannot be recorded."""
    if pid is not None:
        check_process(pid)
        py_spy()
        by_pid = {process.pid: process for process in serve_processes()}
        return [by_pid.get(pid) or ServeProcess(pid, "process", "", "")]
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


def record(options: ProfileOptions) -> int | None:
    """Record the processes that are asked for. Returns the exit code."""
    pid, out = options.pid, options.out
    if options.list_:
        if given := options.changed(lambda option: option.name != "list_"):
            raise BadInput(f"{given[0]}: does not go with --list, which shows every Serve process")
        return list_processes()
    spec = _read_spec(options)
    target = spec.target if pid is None or "target" in options.given else None
    if (pid is None) == (target is None):
        raise BadInput(
            "name what to profile: --pid PID, --target ROLE or --recipe NAME (or --list)"
        )
    if out is not None and (out.is_dir() or not out.name):
        raise BadInput(f"-o: {out} is a folder; it takes a file")
    if out is not None and out.suffix != ".svg":
        raise BadInput(f"-o: {out} is not allowed; it takes a file that ends in .svg")
    processes = _choose_processes(pid, target, options.app, options.deployment)
    if options.dump:
        return print_stacks(processes, spec.native)
    spy = SpyOptions(spec.rate, spec.native, spec.gil, spec.idle)
    return record_processes(processes, Wish(spec.duration, spy, out))


def diff(options: DiffOptions) -> int:
    """Compare two profiles. Returns the exit code."""
    roles = TARGETS[options.target]
    profiles = []
    for word in (options.a, options.b):
        stacks, files = find_stacks(word, options.run, roles)
        name = word if len(files) == 1 else f"{word} ({len(files)} processes)"
        profiles.append((name, stacks))
    typer.echo(difference_text(profiles[0], profiles[1], options.idle), nl=False)
    return 0


# The Serve processes of this machine, and how to profile each.

HEAD: Final = ("pid", "role", "app", "deployment", "CPU %", "MB", "how to profile it")


def list_processes() -> int:
    """Print Serve processes by cluster: role, app, deployment, CPU over half a second, memory."""
    if processes := serve_processes():
        lines = process_lines(in_use(processes), terminal(sys.stdout)[0])
        typer.echo("\n".join(lines))
    else:
        typer.echo("no Serve process runs on this machine")
    return 0


def process_lines(processes: Sequence[InUse], width: int) -> Iterator[str]:
    """Yield the lines of a table of processes, with a heading for each cluster."""
    rows = []
    for used in processes:
        process = used.process
        how = "it is C" if process.role == "haproxy" else f"--pid {process.pid}"
        names = (str(process.pid), process.role, process.app or "", process.deployment or "")
        figures = (f"{used.cpu:.0f}", f"{used.rss_bytes / 1e6:.0f}")
        # Titles are what processes of any user call themselves.
        rows.append([visible(cell) for cell in (*names, *figures, how)])
    head, *blocks = table_blocks(HEAD, rows, (0, 1, 2, 3, 6), width)
    yield from head
    cluster = ""
    for used, lines in zip(processes, blocks, strict=True):
        if used.process.cluster != cluster:
            cluster = used.process.cluster
            yield visible(f"cluster {cluster}")
        yield from lines


# Recording, drawing and printing.


def record_processes(processes: Sequence[ServeProcess], wish: Wish) -> int:
    """Record processes by py-spy, draw and print their profiles. Returns the exit code.

    Raises RunFailed where no process could be recorded."""
    what = counted(len(processes), "process", "processes")
    text = f"recording {what} for {wish.duration_s:g} s"
    with signals(), run_mark() as run_id, Display() as display:
        display.show(text, "recording")

        def show(seconds: float) -> None:
            display.show(f"{text}: {seconds:.0f} s", "recording")

        profiles = record_all(processes, wish, show, marks(run_id))
    if profiles.interrupted and not profiles.done:
        return INTERRUPTED
    if profiles.failed and not profiles.done:
        first, *others = map(str, profiles.failed)
        raise RunFailed(first, tuple(others))
    for failure in profiles.failed:
        print_note(f"serve-bench: {failure}")
    for profile in profiles.done:
        for note in profile.notes:
            print_note(f"note: {note}")
        title = f"{profile.role} {profile.pid}: {profile.samples} samples"
        svg = flame_svg(profile.stacks, title, keep_idle=wish.options.idle)
        write_output(profile.place, svg)
        raw = raw_beside(profile.place)
        typer.echo(f"wrote {profile.place} and {raw} ({profile.samples} samples)")
    for role, group in by_role(profiles.done).items():
        name = f"{role} {', '.join(str(profile.pid) for profile in group)}"
        stacks = merged(profile.stacks for profile in group)
        typer.echo(profile_text(name, stacks, keep_idle=wish.options.idle), nl=False)
    return INTERRUPTED if profiles.interrupted else 0


def print_stacks(processes: Sequence[ServeProcess], native: bool) -> int:
    """Print the stacks of each process now. Returns the exit code."""
    for process in processes:
        if len(processes) > 1:
            typer.echo(f"== {process.role} {process.pid}")
        typer.echo(visible(dump(process.pid, native=native)), nl=False)
    return 0
