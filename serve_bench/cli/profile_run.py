"""`serve-bench profile` after its flags are read: list processes, record, draw, print."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import typer

from serve_bench.cli.command import INTERRUPTED
from serve_bench.cli.progress import Display

if TYPE_CHECKING:
    from serve_bench.analysis.stacks import LayerRules
    from serve_bench.core.errors import BadInput, RunFailed
    from serve_bench.core.result import Trial
    from serve_bench.observing.processes import InUse, ServeProcess
    from serve_bench.observing.profiler import Recordings
    from serve_bench.runner.recording import Profile, Wish


# --------------------------------------------------------------------------------------------------
# `serve-bench profile --list`: the Serve processes of this machine, and how to profile each.

HEAD = ("pid", "role", "app", "deployment", "CPU %", "MB", "how to profile it")


def serve_list() -> int:
    """Prints them by cluster: role, app, deployment, CPU over half a second, memory."""
    from serve_bench.observing.processes import in_use, serve_processes

    processes = serve_processes()
    if not processes:
        typer.echo("no Serve process runs on this machine")
        return 0
    rows: list[tuple[str, ...]] = [HEAD]
    cluster = ""
    for one in in_use(processes):
        if one.process.cluster != cluster:
            cluster = one.process.cluster
            rows.append((f"cluster {cluster}",))
        haproxy = one.process.role == "haproxy"
        how = "--target haproxy (C: perf)" if haproxy else f"--pid {one.process.pid}"
        rows.append(row_of(one, how))
    print_columns(rows)
    return 0


def row_of(one: InUse, how: str) -> tuple[str, ...]:
    """A process as a row below HEAD."""
    process = one.process
    named = (str(process.pid), process.role, process.app or "", process.deployment or "")
    return (*named, f"{one.cpu:.0f}", f"{one.rss_bytes / 1e6:.0f}", how)


def print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    """Rows in columns, the names first. A row of a single text stands alone, and sets no width.

    Without room, memory is left out and names are folded. The last column is meant to be copied.
    """
    from serve_bench.cli.output import width_here
    from serve_bench.core.errors import visible
    from serve_bench.report.columns import fitted

    # Titles are what processes of any user call themselves.
    names, *others = (tuple(visible(cell) for cell in row) for row in rows)
    last = len(names) - 1
    width = width_here()
    table = fitted(names, others, range(last + 1), width, spare=("MB",), fold=(2, 3))
    for line in (*table.lines, *table.left_out(width or 0)):
        typer.echo(line)


# --------------------------------------------------------------------------------------------------
# Recording, drawing and printing.


def record_processes(processes: Sequence[ServeProcess], wish: Wish) -> int:
    """Records Python processes with py-spy, draws and prints their profiles. The exit code."""
    from serve_bench.cli.sitting import run_mark, signals
    from serve_bench.runner.recording import record_all
    from serve_bench.serving.strays import marks

    show = RecordProgress(len(processes), wish.duration_s)
    with signals(), run_mark() as run_id, show as progress:
        profiles = record_all(processes, wish, progress.at, marks(run_id))
    return print_profiles(profiles, wish)


def print_profiles(profiles: Recordings[Profile], wish: Wish) -> int:
    """Draws and prints profiles. The exit code. Raises RunFailed where there is none."""
    from serve_bench.analysis.stacks import merged
    from serve_bench.report.flamegraph import profile_text, reading_of
    from serve_bench.runner.recording import by_role, layer_rules

    if profiles.interrupted and not profiles.done:
        return INTERRUPTED
    print_failures(profiles.failed, partial=bool(profiles.done))
    rules = layer_rules()
    for one in profiles.done:
        _keep(one, wish, rules)
    for role, group in by_role(profiles.done).items():
        name = f"{role} {', '.join(one.who for one in group)}"
        stacks = merged(one.stacks for one in group if one.stacks is not None)
        text = profile_text(reading_of(name, stacks, rules, keep_idle=wish.options.idle), rules)
        typer.echo(text, nl=False)
    return INTERRUPTED if profiles.interrupted else 0


def print_failures(failures: Sequence[RunFailed], *, partial: bool) -> None:
    """Prints failures on stderr. Without any success (`partial` False) they are raised as one
    RunFailed."""
    from serve_bench.core.errors import RunFailed

    if failures and not partial:
        raise RunFailed(str(failures[0]), tuple(str(other) for other in failures[1:]))
    for failure in failures:
        print(f"serve-bench: {failure}", file=sys.stderr)


def no_process(target: str, app: str | None, deployment: str | None, where: str) -> BadInput:
    """The error where no Serve process matches."""
    from serve_bench.core.errors import BadInput

    limits = "".join(
        f" of {name} {value}"
        for name, value in (("app", app), ("deployment", deployment))
        if value is not None
    )
    return BadInput(f"--target {target}: no such Serve process{limits} on {where} (--list)")


def _keep(one: Profile, wish: Wish, rules: LayerRules) -> None:
    """Draws the flamegraph of a profile, and prints which files there are."""
    from serve_bench.report.flamegraph import flame_html, flame_svg, reading_of
    from serve_bench.runner.recording import raw_beside
    from serve_bench.store.files import write_output

    for note in one.notes:
        print(f"note: {note}", file=sys.stderr)
    title = f"{one.role} {one.who}"
    files = [one.place]
    if one.stacks is not None and wish.format == "flamegraph":
        reading = reading_of(title, one.stacks, rules, keep_idle=wish.options.idle)
        if one.place.suffix == ".html":
            write_output(one.place, flame_html(reading, rules))
        else:
            write_output(one.place, flame_svg(reading.counted or one.stacks, reading.about, rules))
        files.append(raw_beside(one.place))
    typer.echo(f"wrote {' and '.join(str(file) for file in files)} ({one.samples} samples)")


def record_haproxy(processes: Sequence[ServeProcess], wish: Wish) -> int:
    """HAProxy is no Python: its CPU, and its stacks by perf. The exit code."""
    from serve_bench.report.flamegraph import profile_text, reading_of
    from serve_bench.runner.recording import layer_rules, record_native

    print("note: haproxy is C, which py-spy cannot see; perf is used for it", file=sys.stderr)
    rules = layer_rules()
    for process in processes:
        cpu, profile_, reason = record_native(process, wish)
        typer.echo(f"haproxy {process.pid}: CPU {cpu:.1f} % of a core")
        if profile_ is None or profile_.stacks is None:
            print(f"note: no stacks: {reason}", file=sys.stderr)
            continue
        _keep(profile_, wish, rules)
        reading = reading_of(f"haproxy {process.pid}", profile_.stacks, rules, keep_idle=True)
        typer.echo(profile_text(reading, rules), nl=False)
    return 0


def print_stacks(processes: Sequence[ServeProcess], native: bool) -> int:
    """The stacks of each process now. The exit code."""
    from serve_bench.observing.profiler import dump

    for process in processes:
        if len(processes) > 1:
            typer.echo(f"== {process.role} {process.pid}")
        typer.echo(dump(process.pid, native=native), nl=False)
    return 0


class RecordProgress(Display):
    """How far a recording of processes is."""

    def __init__(self, count: int, duration_s: float, where: str = "") -> None:
        super().__init__()
        what = f"{count} process{'es' if count != 1 else ''}"
        self._text = f"recording {what}{where} for {duration_s:g} s"

    def __enter__(self) -> Self:
        super().__enter__()
        self.show(self._text, "recording")
        return self

    def at(self, seconds: float) -> None:
        """So many seconds have been recorded."""
        self.show(f"{self._text}: {seconds:.0f} s", "recording")


# --------------------------------------------------------------------------------------------------
# Flamegraphs of a run's profiled trials: an SVG beside each file of raw stacks.


def draw_profiles(folder: Path, trials: Iterable[Trial]) -> list[Path]:
    """Draws the flamegraphs that are not drawn yet. Raises RunFailed when a file cannot be written.

    The title has variant, cell and row. Stacks that were removed later are skipped.
    """
    from serve_bench.report.flamegraph import flame_svg, reading_of
    from serve_bench.runner.recording import RAW_SUFFIX, layer_rules, read_stacks
    from serve_bench.store.files import write_output

    rules = layer_rules()
    drawn = []
    for trial in trials:
        for one in trial.profiles:
            raw = folder / str(one.get("path", ""))
            if not {"role", "pid"} <= set(one) or not _is_of(folder, raw):
                continue
            place = raw.with_name(raw.name.removesuffix(RAW_SUFFIX) + ".svg")
            if place.exists():
                continue
            name = f"{trial.key}, {one['role']} {one['pid']}"
            stacks = read_stacks(raw)
            reading = reading_of(name, stacks, rules)
            write_output(place, flame_svg(reading.counted or stacks, reading.about, rules))
            drawn.append(place)
    return drawn


def _is_of(folder: Path, file: Path) -> bool:
    """Whether a file is there, in this folder: a record may name only files of its run."""
    try:
        return file.resolve().is_relative_to(folder.resolve()) and file.is_file()
    except (OSError, RuntimeError, ValueError):  # a name that no file can have, links in a ring
        return False
