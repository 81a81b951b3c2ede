"""`serve-bench history`: stored runs of one suite over time, and where they step."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from serve_bench.cli.command import argument, command, flag
from serve_bench.cli.gate import GATE_BROKEN, GateOptions, read_threshold

if TYPE_CHECKING:
    from serve_bench.analysis.history.parts import History, PassedOver, Stored

FEWEST_LAST = 2
PAGE = "history.html"


MADE_BY: Final = "serve-bench history"
"""Stands in a picture: by this an earlier one is known, which a new one may replace."""

MOST_CHARTS: Final = 60
"""Of a picture: one of more would be beyond what programs open as a PNG."""


class HistoryOptions(GateOptions):
    """The options of `history`."""

    order = (
        *("dirs", "metric", "variant", "cell", "row", "last", "threshold", "fail_on", "force"),
        *("format", "output", "plot"),
    )

    dirs: list[Path] = argument(
        "Folder of a run, or one that holds runs; several.", metavar="DIR..."
    )
    metric: str = flag("throughput", "throughput, p50, p99, cpu; with commas.")
    variant: str | None = flag(None, "This variant alone.")
    cell: str | None = flag(None, "This cell alone, such as bs1-mcq10000-rep8.")
    row: str | None = flag(None, "This row alone, such as '100 connections'.")
    last: int | None = flag(None, "The newest N runs of each suite alone.")
    fail_on: str | None = flag(
        None,
        "Exit code 3 where the last run brought a step, is an outlier, or cannot be judged: step, "
        "or regressed (for the worse alone).",
    )
    force: bool = flag(False, "Put runs of unlike hosts into one history.")
    format: str = flag("table", "table, markdown, csv, json or html.", "--format", "-f")
    output: str | None = flag(
        None,
        "Write it here, - is stdout [stdout; of html: history.html here].",
        *("--output", "-o"),
        metavar="FILE",
    )
    plot: Path | None = flag(None, "Draw it too, into this file: .png or .svg.")


@command(HistoryOptions)
def history(options: HistoryOptions) -> int:
    """Show runs of one suite over time: every row, its levels, and where it steps.

    Runs of another suite or host make a history of their own. A step takes four runs; what one bad
    night does is told as an outlier.

    Example: serve-bench history results --metric throughput,p99 --fail-on step
    """
    format, output, plot = options.format, options.output, options.plot
    fail_on, last = options.fail_on, options.last
    from serve_bench.analysis.comparison import THRESHOLD
    from serve_bench.analysis.history import FAIL_ON, history_of
    from serve_bench.analysis.history.parts import Chosen
    from serve_bench.benchmarks.history.forms import FORMS, render_history
    from serve_bench.core.errors import BadInput

    if format not in FORMS:
        raise BadInput(f"--format: {format!r} is not allowed; it takes {', '.join(FORMS)}")
    if fail_on is not None and fail_on not in FAIL_ON:
        raise BadInput(f"--fail-on: {fail_on!r} is not allowed; it takes {' or '.join(FAIL_ON)}")
    if last is not None and last < FEWEST_LAST:
        raise BadInput(f"--last: {last} is not allowed; it takes {FEWEST_LAST} or more")
    metrics = read_metrics(options.metric)
    holds = THRESHOLD if options.threshold is None else read_threshold(options.threshold)
    if format == "html" and output is None:
        output = PAGE
    to = None if output is None or output == "-" else Path(output)
    _check_files(format, to, plot)
    stored, passed = find(options.dirs)
    told = history_of(
        stored,
        passed,
        metrics=metrics,
        threshold=holds,
        chosen=Chosen(options.variant, options.cell, options.row, last),
        force=options.force,
    )
    width = 80
    if format == "table" and to is None:
        from serve_bench.report.terminal import terminal

        width, _ = terminal(sys.stdout)
    text = render_history(told, format, width)
    if to is None:
        print(text, end="", flush=True)
    else:
        _write(to, text)
    if plot is not None:
        from serve_bench.benchmarks.history.document import history_sheets
        from serve_bench.report.picture import charts_of, picture

        documents = history_sheets(told)
        count = sum(len(charts_of(one)) for one in documents)
        if count > MOST_CHARTS:
            raise BadInput(
                f"--plot: {count} charts; a picture holds up to {MOST_CHARTS}: choose by --variant,"
                " --cell or --row"
            )
        _write(plot, picture(documents, plot.suffix[1:], MADE_BY))
    return _close(told, fail_on)


def read_metrics(text: str) -> tuple[str, ...]:
    """`throughput,p99` as names, each once. BadInput on one that is none."""
    from serve_bench.analysis.comparing.values import NAMES
    from serve_bench.core.errors import BadInput

    asked = [part.strip() for part in text.split(",")]
    for name in asked:
        if name not in NAMES:
            raise BadInput(f"--metric: {name!r} is not allowed; it takes {', '.join(NAMES)}")
    return tuple(dict.fromkeys(asked))


def find(dirs: Sequence[Path]) -> tuple[list[Stored], list[PassedOver]]:
    """The runs in these folders and all below them, each once, and those that cannot be read.
    BadInput for a folder that is not there, and where no run is found at all."""
    from serve_bench.analysis.history.parts import PassedOver, Stored
    from serve_bench.core.errors import BadInput
    from serve_bench.store import RECORDS_FILE, read
    from serve_bench.store.files import check_reachable

    stored: list[Stored] = []
    passed: list[PassedOver] = []
    seen: set[Path] = set()
    for folder in dirs:
        check_reachable(folder)
        if not folder.exists():
            raise BadInput(f"{folder}: no such folder")
        check_reachable(folder / RECORDS_FILE)
        places, locked = _runs_in(folder)
        for place, why in locked.items():
            if place.resolve() not in seen:
                seen.add(place.resolve())
                passed.append(PassedOver(str(place), why, _written(place)))
        for place in places:
            if place.resolve() in seen:
                continue
            seen.add(place.resolve())
            try:
                stored.append(Stored(str(place), read(place)))
            except BadInput as error:
                passed.append(PassedOver(str(place), str(error), _written(place)))
    if not stored and not passed:
        names = ", ".join(map(str, dirs))
        raise BadInput(f"{names}: no run found (no records.jsonl in it or below)")
    return stored, passed


def _written(place: Path) -> str:
    """When the records of a run that cannot be read were last written, or at least its folder;
    empty if not even that is known."""
    from contextlib import suppress
    from datetime import UTC, datetime

    from serve_bench.store import RECORDS_FILE

    for path in (place / RECORDS_FILE, place):
        with suppress(OSError):
            at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            return at.isoformat(timespec="milliseconds")
    return ""


def _runs_in(folder: Path) -> tuple[list[Path], dict[Path, str]]:
    """The folder itself where it holds a run (or is its records file), otherwise those below that
    do; a run holds no further ones, and links are not followed. With the folders that cannot be
    read, and why."""
    import os

    from serve_bench.store import RECORDS_FILE
    from serve_bench.store.files import why

    if folder.is_file() or (folder / RECORDS_FILE).exists():
        return [folder], {}
    found: list[Path] = []
    locked: dict[Path, str] = {}

    def lock(error: OSError) -> None:
        locked[Path(error.filename or folder)] = f"cannot be read: {why(error)}"

    for place, folders, files in os.walk(folder, onerror=lock):
        folders.sort()
        if RECORDS_FILE in files:
            found.append(Path(place))
            folders.clear()
    return found, locked


def _check_files(format: str, output: Path | None, plot: Path | None) -> None:
    """BadInput unless the files can be written. A page replaces a page of serve-bench, a plot
    one of this command; nothing else is overwritten."""
    from serve_bench.cli.report import is_page
    from serve_bench.cli.show import check_target
    from serve_bench.core.errors import BadInput
    from serve_bench.store.files import check_writable, same_file, why

    if plot is not None and plot.suffix not in (".png", ".svg"):
        raise BadInput(f"--plot: {plot} is not allowed; it takes a file that ends in .png or .svg")
    if output is not None and not (format == "html" and output.is_file() and is_page(output)):
        check_target(output, "--output")
    if plot is not None:
        _check_plot(plot)
    if output is not None and plot is not None and same_file(output, plot):
        raise BadInput(f"--output and --plot: both are {plot}")
    for spelt, path in (("--output", output), ("--plot", plot)):
        try:
            if path is not None and not path.is_char_device() and not path.is_fifo():
                check_writable(path)
        except OSError as error:
            raise BadInput(f"{spelt}: {path}: cannot be written: {why(error)}") from None


def _check_plot(plot: Path) -> None:
    """BadInput where another file than an earlier plot stands."""
    from serve_bench.core.errors import BadInput
    from serve_bench.report.picture import is_made_by
    from serve_bench.store.files import check_reachable, why

    check_reachable(plot, "--plot")
    if not plot.is_file():
        return
    try:
        with plot.open("rb") as file:
            ours = is_made_by(file.read(5000), MADE_BY)
    except OSError as error:
        raise BadInput(f"--plot: {plot}: cannot be read: {why(error)}") from None
    if not ours:
        raise BadInput(
            f"--plot: {plot} exists and is no plot of serve-bench history; nothing is overwritten"
        )


def _write(path: Path, content: str | bytes) -> None:
    from serve_bench.store.files import write_output

    write_output(path, content)
    print(f"wrote {path}", file=sys.stderr)


def _close(told: History, fail_on: str | None) -> int:
    """Says on stderr what broke the gate. Returns the exit code: 0, or GATE_BROKEN."""
    from serve_bench.benchmarks.history.words import gap_lines, news_lines
    from serve_bench.core.errors import visible

    if fail_on is None:
        return 0
    lines = [
        line
        for group in told.groups
        for word, line in news_lines(group)
        if fail_on == "step" or word == "regressed"
    ]
    lines += [f"not judged: {text}" for text in gap_lines(told)]
    for line in lines:
        print(visible(f"gate: {line}"), file=sys.stderr)
    return GATE_BROKEN if lines else 0
