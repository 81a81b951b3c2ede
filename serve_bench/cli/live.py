"""The live view of a terminal: figures that always fit, words that are cut first, and two charts.

Rule: it draws what it is given and measures nothing. Where there are 20 lines it shows requests/s
and p99 of the last 30 s, a column a second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from serve_bench.core.load_result import Progress

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

SECONDS: Final = 30
"""How far back a chart shows, a column for each."""

FEWEST_LINES: Final = 20
"""Of a terminal with charts."""

HEIGHT: Final = 4
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_GAP: Final = 4


def clock(seconds: float) -> str:
    """Seconds as m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def load_figures(now: Progress) -> str:
    """Rate, percentiles and errors of a load, in 52 characters at most up to a million a second."""
    latency = ""
    if now.p50_ns is not None and now.p99_ns is not None:
        latency = f"p50 {_ms(now.p50_ns)} p99 {_ms(now.p99_ns)} ms | "
    errors = f"{now.failed:,} error{'' if now.failed == 1 else 's'}"
    return f"{now.rate:,.0f} req/s | {latency}{errors}"


def _ms(ns: int) -> str:
    ms = ns / 1e6
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.1f}" if ms >= 10 else f"{ms:.2f}"


@dataclass
class View:
    """What is drawn now, by a thread of rich, so that each field is replaced whole. `samples`: rate
    and p99 (ms) of the present row, by second."""

    figures: str = ""
    words: str = ""
    samples: tuple[tuple[int, float, float], ...] = ()
    clock: Callable[[], float] = time.monotonic
    row: object = None

    def load(self, now: Progress | None, row: object) -> None:
        """Takes the state of a load; of another row it begins anew. The last one of a second
        counts, and what connects or drains has no rate to show."""
        if row != self.row:
            self.row, self.samples = row, ()
        if now is None or now.phase not in ("warmup", "measure"):
            return
        second = int(self.clock())
        before = [one for one in self.samples if one[0] != second]
        self.samples = (*before[1 - SECONDS :], (second, now.rate, (now.p99_ns or 0) / 1e6))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        from rich.text import Text

        for line in self.lines(options.max_width, console.size.height):
            yield Text(line, overflow="ellipsis", no_wrap=True)

    def lines(self, width: int, height: int) -> list[str]:
        """The view in a terminal of this size."""
        samples, lines = self.samples, [one for one in (self.figures, self.words) if one]
        wide = min(SECONDS, (width - _GAP) // 2)
        if height < FEWEST_LINES or len(samples) < 2 or wide < len("requests/s, most 1,000"):
            return lines
        sides = [
            chart(title, [one[at] for one in samples][-wide:], wide)
            for title, at in (("requests/s", 1), ("p99 ms", 2))
        ]
        return lines + [f"{a:{wide + _GAP}}{b}".rstrip() for a, b in zip(*sides, strict=True)]


def chart(title: str, values: Sequence[float], width: int) -> list[str]:
    """Columns from 0 to the highest value, the newest on the right; the title says how high."""
    top = max(values, default=0.0)
    eighths = [round(8 * HEIGHT * value / top) if top else 0 for value in values]
    rows = [
        "".join(_BLOCKS[min(8, max(0, one - 8 * row))] for one in eighths).rjust(width)
        for row in reversed(range(HEIGHT))
    ]
    most = f"{top:,.0f}" if top >= 100 else f"{top:.3g}"
    return [f"{title}, most {most}".ljust(width), *rows]
