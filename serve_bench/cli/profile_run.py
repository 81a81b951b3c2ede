"""`serve-bench profile` after its flags are read: list processes, record, draw, print."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Self

import typer

from serve_bench.analysis.stacks import merged
from serve_bench.cli import INTERRUPTED, print_note
from serve_bench.cli.progress import Display
from serve_bench.cli.sitting import run_mark, signals
from serve_bench.core.errors import RunFailed, visible
from serve_bench.observing.processes import InUse, ServeProcess, in_use, serve_processes
from serve_bench.observing.profiler import Recordings, dump
from serve_bench.report.columns import table_blocks
from serve_bench.report.flamegraph import flame_svg
from serve_bench.report.profile_text import profile_text
from serve_bench.report.terminal import terminal
from serve_bench.runner.recording import Profile, Wish, by_role, raw_beside, record_all
from serve_bench.serving.strays import marks
from serve_bench.store.files import write_output

# `serve-bench profile --list`: the Serve processes of this machine, and how to profile each.

HEAD = ("pid", "role", "app", "deployment", "CPU %", "MB", "how to profile it")


def list_processes() -> int:
    """Prints them by cluster: role, app, deployment, CPU over half a second, memory."""
    if processes := serve_processes():
        lines = process_lines(in_use(processes), terminal(sys.stdout)[0])
        typer.echo("\n".join(lines))
    else:
        typer.echo("no Serve process runs on this machine")
    return 0


def process_lines(processes: Sequence[InUse], width: int) -> Iterator[str]:
    """A table of processes, with a heading for each cluster."""
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
    """Records Python processes with py-spy, draws and prints their profiles. The exit code."""
    show = RecordProgress(len(processes), wish.duration_s)
    with signals(), run_mark() as run_id, show as progress:
        profiles = record_all(processes, wish, progress.at, marks(run_id))
    return print_profiles(profiles, wish)


def print_profiles(profiles: Recordings[Profile], wish: Wish) -> int:
    """Draws and prints profiles. The exit code. Raises RunFailed where there is none."""
    if profiles.interrupted and not profiles.done:
        return INTERRUPTED
    print_failures(profiles.failed, partial=bool(profiles.done))
    for profile in profiles.done:
        _draw(profile, wish)
    for role, group in by_role(profiles.done).items():
        name = f"{role} {', '.join(str(profile.pid) for profile in group)}"
        stacks = merged(profile.stacks for profile in group)
        typer.echo(profile_text(name, stacks, keep_idle=wish.options.idle), nl=False)
    return INTERRUPTED if profiles.interrupted else 0


def print_failures(failures: Sequence[RunFailed], *, partial: bool) -> None:
    """Prints failures on stderr. Without any success (`partial` False) they are raised as one
    RunFailed."""
    if failures and not partial:
        raise RunFailed(str(failures[0]), tuple(str(other) for other in failures[1:]))
    for failure in failures:
        print_note(f"serve-bench: {failure}")


def _draw(profile: Profile, wish: Wish) -> None:
    for note in profile.notes:
        print_note(f"note: {note}")
    title = f"{profile.role} {profile.pid}: {profile.samples} samples"
    svg = flame_svg(profile.stacks, title, keep_idle=wish.options.idle)
    write_output(profile.place, svg)
    raw = raw_beside(profile.place)
    typer.echo(f"wrote {profile.place} and {raw} ({profile.samples} samples)")


def print_stacks(processes: Sequence[ServeProcess], native: bool) -> int:
    """The stacks of each process now. The exit code."""
    for process in processes:
        if len(processes) > 1:
            typer.echo(f"== {process.role} {process.pid}")
        typer.echo(visible(dump(process.pid, native=native)), nl=False)
    return 0


class RecordProgress(Display):
    """How far a recording of processes is."""

    def __init__(self, count: int, duration_s: float) -> None:
        super().__init__()
        what = f"{count} process{'es' if count != 1 else ''}"
        self._text = f"recording {what} for {duration_s:g} s"

    def __enter__(self) -> Self:
        super().__enter__()
        self.show(self._text, "recording")
        return self

    def at(self, seconds: float) -> None:
        """So many seconds have been recorded."""
        self.show(f"{self._text}: {seconds:.0f} s", "recording")
