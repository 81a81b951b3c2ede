"""The tables of a rpc run: figures of each world, ratios between backends, CPU and memory.

Rule: rows are texts; with several backends they stand by the x axis, so that the same world can be
read across. Where a table is too wide, columns are left out in a set order, and it is said which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.parts.texts import latency, mean_and_std, number
from serve_bench.benchmarks.rpc.joined import RpcEntry, RpcPage
from serve_bench.benchmarks.rpc.summary import NAMES, PERCENTILES, Figures
from serve_bench.report.columns import Texts, columns, fitted, markdown_table, wrapped
from serve_bench.report.widths import width_of

AGENT_LATENCY, AGENT_RATE, OBSERVER_LATENCY, OBSERVER_RATE = NAMES


class Column(NamedTuple):
    """`group`: the name that it stands under, once for columns that follow each other."""

    group: str
    name: str
    text: Callable[[RpcEntry], str]

    @property
    def whole(self) -> str:
        """The name where it stands alone."""
        return f"{self.group} {self.name}".strip()


def _figure(metric: str, share: int) -> Callable[[RpcEntry], str]:
    def text(entry: RpcEntry) -> str:
        figures = entry.point.figures.get(metric)
        if figures is None:
            return "-"
        value = figures.percentiles[share]
        return latency(value * 1e3) if "latency" in metric else number(value)

    return text


def _all(entry: RpcEntry) -> str:
    spread = entry.point.line.spreads.get(MAIN)
    if spread is not None and spread.windows == spread.launches:  # an episode each: no spread
        return number(spread.mean)
    return mean_and_std(spread)


def _over_launches(entry: RpcEntry) -> str:
    spread = entry.point.line.spreads.get(MAIN)
    return number(None if spread is None else spread.launch_std)


_AGENT_P95: Final = Column("agent", "p95 ms", _figure(AGENT_LATENCY, 95))
_OBSERVER_P95: Final = Column("observer", "p95 ms", _figure(OBSERVER_LATENCY, 95))
_OBSERVER_P99: Final = Column("observer", "p99 ms", _figure(OBSERVER_LATENCY, 99))

FIGURES: Final = (
    Column("agent", "p50 ms", _figure(AGENT_LATENCY, 50)),
    _AGENT_P95,
    Column("agent", "p50 1/s", _figure(AGENT_RATE, 50)),
    Column("observer", "p50 ms", _figure(OBSERVER_LATENCY, 50)),
    _OBSERVER_P95,
    _OBSERVER_P99,
    Column("observer", "p50 1/s", _figure(OBSERVER_RATE, 50)),
    Column("all observers", "requests/s", _all),
)
SHORT: Final = (FIGURES[0], FIGURES[3], _OBSERVER_P99, FIGURES[-1])
"""Those that a comment on a pull request has room for."""
OVER_LAUNCHES: Final = Column("all observers", "launches ±", _over_launches)
LEFT_OUT_FIRST: Final = (_OBSERVER_P99, _AGENT_P95, _OBSERVER_P95, OVER_LAUNCHES)


def figures_table(page: RpcPage, width: int) -> Iterator[str]:
    """The figures of every world; of several launches the spread of their means too."""
    every = (*FIGURES, OVER_LAUNCHES) if page.several_launches else FIGURES
    yield from _table(page, every, page.entries, width, LEFT_OUT_FIRST)


# ---------------------------------------------------------------------------------- ratios


def _ratio(metric: str) -> Callable[[RpcEntry], str]:
    def text(entry: RpcEntry) -> str:
        found = entry.point.ratios.get(metric)
        return "-" if found is None else _times(found)

    return text


def _times(ratio: float) -> str:
    """Two decimals; more where two would hold less than two digits of it."""
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def _rate_ratio(entry: RpcEntry) -> str:
    found = entry.point.line.ratio
    return "-" if found is None else _times(found)


def _more(base: Mapping[str, Figures]) -> Callable[[RpcEntry], str]:
    def text(entry: RpcEntry) -> str:
        if OBSERVER_LATENCY not in base or not entry.point.ratios:
            return "-"
        medians = [one[OBSERVER_LATENCY].percentiles[50] for one in (entry.point.figures, base)]
        ms = 1e3 * (medians[0] - medians[1])
        return f"{'+' if ms >= 0 else '-'}{latency(abs(ms))}"

    return text


def ratio_columns(base: RpcEntry | None) -> tuple[Column, ...]:
    """Ratios to the same world on the first backend, and what a call takes more there."""
    return (
        Column("agent", "latency", _ratio(AGENT_LATENCY)),
        Column("agent", "1/s", _ratio(AGENT_RATE)),
        Column("observer", "latency", _ratio(OBSERVER_LATENCY)),
        Column("observer", "1/s", _ratio(OBSERVER_RATE)),
        Column("observer", "ms more", _more(base.point.figures if base is not None else {})),
        Column("all observers", "requests/s", _rate_ratio),
    )


def ratios_table(page: RpcPage, width: int) -> Iterator[str]:
    """Every backend but the first, by the x axis."""
    rows: list[Texts] = []
    shown = ratio_columns(None)
    for x in page.xs:
        first, *others = page.at(x)
        base = first if first.point.backend == page.backends[0] else None
        own = ratio_columns(base)
        rows.append((f"{page.x_axis} {x}:",))
        rows += [
            (f"  {one.point.backend}", *(column.text(one) for column in own))
            if one.point.figures
            else (f"  {one.point.backend}: {one.gap}",)
            for one in (others if base is not None else page.at(x))
        ]
    yield from columns(_groups("", shown), [_names(shown), *rows], width=width)


# ------------------------------------------------------------------------------ CPU, memory


def memory(entry: RpcEntry) -> str:
    """`1.62 GB in 80`, processes; `-` where it is not known."""
    size = entry.point.memory_bytes
    if size is None:
        return "-"
    text = f"{number(size / 1e9, 3)} GB" if size >= 1e9 else f"{number(size / 1e6, 3)} MB"
    return text if entry.processes is None else f"{text} in {entry.processes}"


def _percent(name: str) -> Callable[[RpcEntry], str]:
    def text(entry: RpcEntry) -> str:
        share = getattr(entry.use, name)
        return "-" if share is None else f"{share:.0f}"

    return text


def _host(entry: RpcEntry) -> str:
    use = entry.use
    if use.host is None:
        return "-"
    return f"{use.host:.0f}" + (f" of {100 * use.cores}" if use.cores else "")


def cpu_ms_a_call(entry: RpcEntry) -> float | None:
    """What all processes of the world used of a core for a call, in ms; None: not known."""
    use, rate = entry.use, entry.point.line.spreads.get(MAIN)
    known = [one for one in (use.agent, use.observers, use.others) if one is not None]
    if not known or use.agent is None or rate is None or rate.mean <= 0:
        return None
    return 10.0 * sum(known) / rate.mean


_OTHERS: Final = Column("CPU %", "others", _percent("others"))
_A_CALL: Final = Column("CPU ms", "a call", lambda entry: number(cpu_ms_a_call(entry), 3))
_MEMORY: Final = Column("memory", "in processes", memory)
INSIDE: Final = (
    Column("CPU %", "agent", _percent("agent")),
    Column("CPU %", "observers", _percent("observers")),
    _OTHERS,
    Column("CPU %", "host", _host),
    _A_CALL,
    _MEMORY,
    Column("", "limited by", lambda entry: entry.use.limited or "-"),
)


def inside_table(page: RpcPage, width: int) -> Iterator[str]:
    """CPU, memory and limit of every world that was measured."""
    entries = [one for one in page.entries if one.point.trials]
    yield from _table(page, INSIDE, entries, width, (_MEMORY, _OTHERS, _A_CALL))


# -------------------------------------------------------------------------- laying them out


def _table(
    page: RpcPage,
    every: Sequence[Column],
    entries: Sequence[RpcEntry],
    width: int,
    left_out_first: Sequence[Column] = (),
) -> Iterator[str]:
    """A row for each entry: by the x axis, its backends under it where there are several."""
    for left in range(len(left_out_first) + 1):
        shown = [one for one in every if one not in left_out_first[:left]]
        rows = list(_rows(page, shown, entries))
        head = "" if len(page.backends) > 1 else page.x_axis
        names = [_names(shown, head), *rows]
        lines = fitted(_groups("", shown), names, width=width, fold=()).lines
        if max(map(width_of, lines)) <= width:
            break
    yield from columns(_groups("", shown), names, width=width)
    gone = [one.whole for one in every if one not in shown]
    if gone:
        yield from wrapped(f"left out, too wide: {', '.join(gone)}; csv and json have them", width)


def _rows(page: RpcPage, shown: Sequence[Column], entries: Sequence[RpcEntry]) -> Iterator[Texts]:
    for x in page.xs:
        own = [one for one in entries if one.point.x == x]
        several = len(page.backends) > 1
        if several and own:
            yield (f"{page.x_axis} {x}:",)
        for entry in own:
            name = f"  {entry.point.backend}" if several else x
            if entry.point.figures:
                yield (name, *(column.text(entry) for column in shown))
            else:
                yield (f"{name}: {entry.gap}",)


def _groups(head: str, shown: Sequence[Column]) -> list[str]:
    """The names of groups, each over its first column."""
    before = ["", *(one.group for one in shown[:-1])]
    pairs = zip(shown, before, strict=True)
    return [head, *("" if one.group == last else one.group for one, last in pairs)]


def _names(shown: Sequence[Column], head: str = "") -> list[str]:
    return [head, *(one.name for one in shown)]


def markdown_figures(page: RpcPage) -> list[str]:
    """All figures as one Markdown table; with several backends the ratios of the medians too, with
    several launches the spread of their means."""
    several = len(page.backends) > 1
    every = (*FIGURES, OVER_LAUNCHES) if page.several_launches else FIGURES
    names = [page.x_axis, "backend", *(one.whole for one in every)]
    if several:
        names += [f"{word} latency to {page.backends[0]}" for word in ("agent", "observer")]
    rows = []
    for x in page.xs:
        for entry in page.at(x):
            texts = [x, entry.point.backend, *(one.text(entry) for one in every)]
            if not entry.point.figures:
                texts[2] = str(entry.gap)
            ratios = [markdown_ratio(page, entry, of) for of in (AGENT_LATENCY, OBSERVER_LATENCY)]
            rows.append([*texts, *ratios][: len(names)])
    return markdown_table(names, rows, (1,))


def markdown_ratio(page: RpcPage, entry: RpcEntry, metric: str = OBSERVER_LATENCY) -> str:
    """The ratio of the medians to the same world on the first backend; 1 for that itself."""
    base = entry.point.backend == page.backends[0] and entry.point.figures
    return "1" if base else _ratio(metric)(entry)


def published_table(example: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """The source's example: the four metrics with their percentiles, as printed there."""
    rows: list[Texts] = []
    for one in example:
        rows.append((f"world_size {one['world_size']}:",))
        for name in NAMES:
            values = one[name.removesuffix(" (seconds)").replace(" ", "_")]
            rows.append((f"  {name}", *(str(value) for value in values)))
    yield from columns(("", *(f"p{share}" for share in PERCENTILES)), rows, width=width)
