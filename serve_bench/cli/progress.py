"""What a person sees while a run goes on: what runs now, the rate, the time left.

On a terminal one live line, with finished trials above it; elsewhere plain lines. All of it goes
to stderr, so that stdout holds the report alone.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Protocol, Self, TextIO

from serve_bench.analysis.statistics import latency_figures
from serve_bench.benchmarks.parts.texts import bound_sign
from serve_bench.core.errors import visible
from serve_bench.core.kept import kept_text
from serve_bench.core.plan import label_of
from serve_bench.core.result import Failure, Trial
from serve_bench.runner.runner import Observer, Step

if TYPE_CHECKING:
    from rich.live import Live

#: Without a terminal a line comes when something begins, and at most so often within it.
PLAIN_EVERY_S = 10.0


class ScopedObserver(Observer, Protocol):
    """An observer that is on show between enter and exit."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def make_observer(stream: TextIO | None = None) -> ScopedObserver:
    """A live line on a terminal, plain lines elsewhere."""
    out = stream or sys.stderr
    return LiveLine(out) if out.isatty() else PlainLines(out)


#: What a model is made of, which the report tells once.
_MODEL: Final = (
    *("rows_per_request", "dense_features", "sparse_features", "width", "table_rows", "seed"),
    *("bottom", "top"),
)


def cell_text(cell: Mapping[str, object]) -> str:
    """A cell in few characters: `batch 1, concurrency 10000, replicas 8`."""
    short = {
        "max_batch_size": "batch",
        "max_concurrent_queries": "concurrency",
        "num_replicas": "replicas",
    }
    return ", ".join(
        f"{short.get(name, name)} {value}" for name, value in cell.items() if name not in _MODEL
    )


def step_text(step: Step) -> str:
    """One line on where the run is."""
    about = "~" if step.about else ""
    place = f"[{step.number}/{about}{step.of}] {about}{clock(step.left_s)} left"
    parts = [place, step.who]
    if step.cell is not None:
        parts.append(cell_text(label_of(step.cell)))
    if step.row is not None:
        parts.append(step.row.label)
    rate = f" {step.rate:,.0f} req/s" if step.rate is not None else ""
    parts.append(f"{step.phase}{rate}")
    return visible(" | ".join(parts))


def trial_text(trial: Trial, number: int, of: int) -> str:
    """One line on a measured trial."""
    rates = trial.metrics["throughput"].windows or (0.0,)
    spread = f" ± {statistics.pstdev(rates):,.1f}" if len(rates) > 1 else ""
    (p50,) = latency_figures([trial], (0.5,))  # wrk tells none
    latency = f", p50 {bound_sign(p50)}{p50 / 1e6:.2f} ms" if p50 is not None else ""
    errors = f", {trial.counts.failed_total} errors" if trial.counts.failed_total else ""
    if trial.flags.get("invalid"):
        errors += ", INVALID"
    if trial.flags.get("interrupted"):
        errors += ", interrupted"
    elif trial.flags.get("cut"):
        errors += ", cut off"
    place = ", ".join(one for one in (trial.variant, cell_text(trial.cell), trial.row.label) if one)
    return visible(
        f"[{number}/{of}] {place} "
        f"({trial.row.client}{', profiled' if trial.profiled else ''}): "
        f"{statistics.fmean(rates):,.1f}{spread} req/s{latency}{errors}"
    )


def clock(seconds: float) -> str:
    """Seconds as m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def failure_text(failure: Failure) -> str:
    """A failure with the lines that explain it."""
    where = failure.key or failure.variant or ""
    head = f"{failure.what} failed{f' ({where})' if where else ''}: {failure.message}"
    return visible(kept_text("\n".join([head, *(f"    {line}" for line in failure.detail)])))


class PlainLines:
    """Lines without control characters, for a log or a pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: tuple[object, ...] | None = None
        self._said_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def step(self, step: Step) -> None:
        """A line when the phase changes to something slow, or after a while."""
        # Connect and warm-up are under a second, so they are not worth a line of their own.
        phase = "load" if step.row is not None else step.phase
        now = (step.who, step.round, step.cell, step.row, phase)
        if now == self._last and time.monotonic() - self._said_at < PLAIN_EVERY_S:
            return
        if now != self._last and step.row is not None:
            self._last, self._said_at = now, time.monotonic()
            return  # the finished trial has its own line
        self._last, self._said_at = now, time.monotonic()
        print(step_text(step), file=self._stream, flush=True)

    def trial(self, trial: Trial, number: int, of: int) -> None:
        """A line for a measured trial."""
        print(trial_text(trial, number, of), file=self._stream, flush=True)

    def failure(self, failure: Failure) -> None:
        """The failure and what explains it."""
        print(failure_text(failure), file=self._stream, flush=True)


class LiveLine:
    """One line that changes, drawn by rich; it goes away at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.live import Live

        console = Console(file=self._stream, highlight=False)
        self._live = Live("", console=console, refresh_per_second=8, transient=True)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def step(self, step: Step) -> None:
        """Shows it in the live line."""
        from rich.text import Text

        if self._live is not None:
            self._live.update(Text(step_text(step), overflow="ellipsis", no_wrap=True))

    def trial(self, trial: Trial, number: int, of: int) -> None:
        """Prints it above the live line."""
        self._print(trial_text(trial, number, of))

    def failure(self, failure: Failure) -> None:
        """Prints it above the live line."""
        self._print(failure_text(failure))

    def _print(self, text: str) -> None:
        from rich.text import Text

        if self._live is not None:
            self._live.console.print(Text(text))
