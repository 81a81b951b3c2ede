"""What a person sees during a run: what runs now, rate, latency, errors, the time left.

On a terminal the live view, with finished trials above it; elsewhere, or with `--live plain`, plain
lines. All of it goes to stderr, so that stdout holds the report alone.

The live view measures nothing: figures always fit, words are cut first. Where there are 20 lines it
shows requests/s and p99 of the last 30 s, a column a second.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self, TextIO

from serve_bench.analysis.statistics import latency_figures, read_rate
from serve_bench.core.axes import AXES
from serve_bench.core.errors import visible
from serve_bench.core.figures import bound_sign, counted
from serve_bench.core.load_result import Progress
from serve_bench.core.plan import label_of
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.result import Failure, Trial
from serve_bench.runner.runner import RunStep

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.live import Live
    from rich.text import Text

#: Without a terminal a line comes when something begins, and at most so often within it.
PLAIN_EVERY_S = 10.0

#: Time without any response after which a load says so.
SILENT_S = 5.0

#: How often it is looked whether something is shown, and how long nothing may be: 15 s at most.
TICK_S, QUIET_S = 1.0, 12.0


def cell_text(cell: Mapping[str, object]) -> str:
    """Write a cell in few characters: `batch 1, concurrency 10000, replicas 8`."""
    briefs = {axis.name: axis.brief for axis in AXES.values() if axis.brief is not None}
    named = ((briefs.get(name, name), value) for name, value in cell.items())
    return ", ".join(f"{brief} {value}" for brief, value in named if brief)


def step_texts(step: RunStep) -> tuple[str, str]:
    """Describe where a run is: its figures, which fit 80 columns, and what is measured."""
    about = "~" if step.estimated else ""
    figures = [f"[{step.number}/{about}{step.of}] {about}{clock(step.left_s)} left"]
    if step.load is not None:
        figures.append(load_figures(step.load))
    elif step.rate is not None:
        figures.append(f"{step.rate:,.0f} req/s")
    words = [step.who]
    if step.cell is not None:
        words.append(cell_text(label_of(step.cell)))
    if step.row is not None:
        words.append(step.row.label)
    words.append(step.phase)
    if step.load is not None and step.load.silent_s >= SILENT_S:
        words.append(f"no response for {step.load.silent_s:.0f} s")
    return visible(" | ".join(figures)), visible(" | ".join(words))


def _describe_place(record: Trial | Failure) -> str:
    cell, row = record.cell or {}, record.row.label if record.row else ""
    variant = None if record.variant in cell else record.variant  # url, of an address
    return ", ".join(filter(None, (variant, cell_text(cell), row)))


def trial_text(trial: Trial, number: int, of: int) -> str:
    """Write a line on a measured trial: the figures that it has, and what is wrong with it."""
    figures = []
    if "throughput" in trial.metrics:
        rate = read_rate(trial)
        varied = len(rate.windows) > 1 and rate.has_spread
        spread = f" ± {statistics.pstdev(rate.windows):,.1f}" if varied else ""
        figures.append(f"{rate.mean or 0.0:,.1f}{spread} req/s")
    (p50,) = latency_figures([trial], (0.5,))
    if p50 is not None:
        figures.append(f"p50 {bound_sign(p50)}{p50 / 1e6:.2f} ms")
    failed, flags = trial.counts.failed_total, trial.flags
    signs = {counted(failed, "error"): failed, "INVALID": flags.invalid}
    signs |= {"interrupted": flags.interrupted, "cut off": flags.cut and not flags.interrupted}
    figures += [sign for sign, holds in signs.items() if holds]
    profiled = ", profiled" if flags.profiled else ""
    head = f"[{number}/{of}] {_describe_place(trial)} ({trial.row.client}{profiled})"
    return visible(": ".join(filter(None, (head, ", ".join(figures)))))


def failure_text(failure: Failure) -> str:
    """Describe a failure with the lines that explain it."""
    where = _describe_place(failure) + (
        f", round {round_}" if (round_ := failure.round or 1) > 1 else ""
    )
    head = f"{failure.what} failed{f' ({where})' if where else ''}: {failure.message}"
    return visible(hide_in_text("\n".join([head, *(f"    {line}" for line in failure.detail)])))


class Display:
    """Shows what goes on, between enter and exit: an Observer of a run or a recording.

    On a terminal, unless `plain`, the live view, drawn by rich, below the lines that stay; it goes
    away at the end. Elsewhere plain lines. Where nothing more comes, a thread says what is waited
    for, and since when. Where nobody reads them any more (a closed pipe, a full disk) nothing is
    shown, and what is measured continues."""

    def __init__(
        self,
        stream: TextIO | None = None,
        plain: bool = False,
        clock: Callable[[], float] = time.monotonic,
        letters: Mapping[str, str] | None = None,
    ) -> None:
        self._stream: TextIO | None = stream or sys.stderr
        self._plain, self._clock, self._letters = plain, clock, letters or {}
        self._view = LineView()
        self._live: Live | None = None
        self._last: object = None
        self._said_at = clock()
        self._words, self._since = "", 0.0
        self._turn = threading.RLock()
        self._over = threading.Event()

    def __enter__(self) -> Self:
        if self._stream is not None and self._stream.isatty() and not self._plain:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream, highlight=False)
            self._live = Live(self._view, console=console, refresh_per_second=4, transient=True)
            self._live.start()
        threading.Thread(target=self._watch, name="display", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._live is not None:
            self._live.stop()

    def step(self, step: RunStep) -> None:
        """Show where a run is. Without a terminal: where it comes to something slow."""
        # Connect and warm-up are under a second, so they are not worth a line, and
        # the finished trial has its own.
        phase = "load" if step.row is not None else step.phase
        key = (step.who, step.round, step.cell, step.row, phase)
        self._view.load(step.load, key)
        silent = step.load is not None and step.load.silent_s >= SILENT_S
        figures, words = step_texts(step)
        self.show(words, (*key, silent), silent or step.row is None, figures)

    def trial(self, trial: Trial, number: int, of: int) -> None:
        """Print a line for a measured trial."""
        who = self._letters.get(trial.variant, trial.variant)
        self._keep(trial_text(replace(trial, variant=who), number, of))

    def failure(self, failure: Failure) -> None:
        """Print a failure and what explains it."""
        self._keep(failure_text(failure))

    def show(self, words: str, key: object, at_once: bool = True, figures: str = "") -> None:
        """Show what goes on now.

        Without a terminal the line is printed where `key` has changed, unless it is not needed
        `at_once`, and every ten seconds of the same."""
        with self._turn:
            now = self._clock()
            self._view.figures, self._view.words = figures, words
            if words != self._words:
                self._words, self._since = words, now
            if self._live is not None:
                self._said_at = now
                return  # it is drawn four times a second
            changed = key != self._last
            if not changed and now - self._said_at < PLAIN_EVERY_S:
                return
            self._last = key
            if at_once or not changed:
                self._said_at = now
                self._print(" | ".join(filter(None, (figures, words))))

    def tick(self) -> None:
        """Say what is waited for, and since when, where nothing was shown for a while."""
        with self._turn:
            now = self._clock()
            if not self._words or now - self._said_at < QUIET_S:
                return
            waited_s = now - self._since
            since = time.strftime("%H:%M:%S", time.localtime(time.time() - waited_s))
            self._view.words = f"{self._words} | for {waited_s:.0f} s, since {since}"
            if self._live is None:
                self._said_at = now
                self._print(self._view.words)

    def _watch(self) -> None:
        while not self._over.wait(TICK_S):
            self.tick()

    def _keep(self, text: str) -> None:
        with self._turn:
            self._said_at = self._clock()
            if self._live is not None:
                from rich.text import Text

                self._live.console.print(Text(text))
            else:
                self._print(text)

    def _print(self, text: str) -> None:
        try:
            if self._stream is not None:
                print(text, file=self._stream, flush=True)
        except OSError:
            self._stream = None


SECONDS: Final = 30
"""How far back a chart shows, a column for each."""

FEWEST_LINES: Final = 20
"""Of a terminal with charts."""

HEIGHT: Final = 4
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_GAP: Final = 4


def clock(seconds: float) -> str:
    """Format seconds as m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def load_figures(now: Progress) -> str:
    """Format rate, percentiles and errors of a load: 52 characters at most up to a million/s."""
    latency = ""
    if now.p50_ns is not None and now.p99_ns is not None:
        latency = f"p50 {_format_ms(now.p50_ns)} p99 {_format_ms(now.p99_ns)} ms | "
    return f"{now.rate:,.0f} req/s | {latency}{counted(now.failed, 'error')}"


def _format_ms(ns: int) -> str:
    ms = ns / 1e6
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


@dataclass
class LineView:
    """What is drawn now, by a thread of rich, so that each field is replaced whole."""

    figures: str = ""
    words: str = ""
    samples: tuple[tuple[int, float, float], ...] = ()  # rate and p99 (ms) of the row by second
    clock: Callable[[], float] = time.monotonic
    row: object = None

    def load(self, now: Progress | None, row: object) -> None:
        """Take the state of a load; another row begins anew.

        The last of a second counts, and what connects or drains has no rate to show."""
        if row != self.row:
            self.row, self.samples = row, ()
        if now is None or now.phase not in ("warmup", "measure"):
            return
        second = int(self.clock())
        before = [sample for sample in self.samples if sample[0] != second]
        self.samples = (*before[1 - SECONDS :], (second, now.rate, (now.p99_ns or 0) / 1e6))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        samples, lines = self.samples, [line for line in (self.figures, self.words) if line]
        wide, height = min(SECONDS, (options.max_width - _GAP) // 2), console.size.height
        if height >= FEWEST_LINES and len(samples) >= 2 and wide >= len("requests/s, most 1,000"):
            sides = [
                chart(title, [sample[place] for sample in samples][-wide:], wide)
                for title, place in (("requests/s", 1), ("p99 ms", 2))
            ]
            lines += [f"{a:{wide + _GAP}}{b}".rstrip() for a, b in zip(*sides, strict=True)]
        for line in lines:
            yield Text(line, overflow="ellipsis", no_wrap=True)


def chart(title: str, values: Sequence[float], width: int) -> list[str]:
    """Draw columns from 0 to the highest value, the newest on the right, under a title with it."""
    top = max(values, default=0.0)
    eighths = [round(8 * HEIGHT * value / top) if top else 0 for value in values]
    rows = [
        "".join(_BLOCKS[min(8, max(0, eighth - 8 * row))] for eighth in eighths).rjust(width)
        for row in reversed(range(HEIGHT))
    ]
    most = f"{top:,.0f}" if top >= 100 else f"{top:.3g}"
    return [f"{title}, most {most}".ljust(width), *rows]
