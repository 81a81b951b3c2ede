"""The tables on the page of a run of ladders: each service at its knee, and every step.

Rule: figures are those of ladder_json; doubts stand under the row that they are about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.ladder.summary import LadderLine
from serve_bench.benchmarks.ladder.tables import NOT_VISIBLE, entries_of, name_of, size_of
from serve_bench.benchmarks.parts.page import Entry, Page
from serve_bench.benchmarks.parts.pieces import (
    NOTHING,
    count,
    distinct,
    errors,
    limit_words,
    milliseconds,
    padded,
    plain,
    rate,
    share,
)
from serve_bench.core.document import Cell, Column, Finding, Number, Row, Table, Text, Tone
from serve_bench.core.ladder import KNEE
from serve_bench.core.result import Row as Load
from serve_bench.core.result import Trial
from serve_bench.core.usage import BATCH_SIZE, mean_forward_ns

_KNEES: Final = (
    Column("service", number=False),
    Column("throughput", "requests/s"),
    Column("p50", "ms"),
    Column("p90", "ms"),
    Column("p99", "ms"),
    Column("users", "at the knee"),
    Column("errors", "all steps"),
    Column("best", "requests/s"),
    Column("users", "at the best"),
    Column("ratio", "of the best"),
)


def names_of(ladders: Sequence[LadderLine]) -> list[str]:
    """A name for each ladder, no longer than is needed to tell it from the others."""
    if len(ladders) == 1:
        return [name_of(ladders[0])]
    return distinct([f"{name_of(one)}, {size_of(one)}" for one in ladders])


def knees_table(page: Page, ladders: Sequence[LadderLine]) -> Table:
    """Each service where it is saturated, by size; ratios are of the best requests/s."""
    sizes: dict[str, list[LadderLine]] = {}
    for one in ladders:
        sizes.setdefault(size_of(one), []).append(one)
    # Where sizes have one service each they tell the rows apart, without headings.
    several = len(sizes) < len(ladders)
    names = dict(zip(map(id, ladders), names_of(ladders), strict=True))
    rows = [
        replace(
            _knee(page, name_of(one) if several else names[id(one)], one, own[0]),
            group=size if several else "",
        )
        for size, own in sizes.items()
        for one in own
    ]
    return Table(
        "At saturation: the fewest users with "
        f"{100 * KNEE:.0f} % of the best requests/s, by service",
        _KNEES,
        tuple(rows),
        notes=(
            "±: std over the windows (ddof 0). Ratio: of the best requests/s, to that of the first "
            "service of the same size.",
        ),
    )


def _knee(page: Page, name: str, ladder: LadderLine, base: LadderLine) -> Row:
    knee, best = ladder.knee, ladder.best
    failed = count(ladder.errors, "bad" if ladder.errors else "plain")
    if knee is None or best is None:
        cells: tuple[Cell, ...] = (name, Text(ladder.without, "doubt"))
        shown = (*padded(cells, 6), failed, NOTHING, NOTHING, NOTHING)
        return Row(shown, _all_remarks(page, ladder))
    entries = entries_of(ladder, page)
    latencies = knee.distributions.get("latency")
    limit = _limit(ladder, entries[knee.row])
    own = [one.of("at the knee") for one in entries[knee.row].findings]
    if best is not knee:
        own += [one.of("at the best") for one in entries[best.row].findings]
    return Row(
        (
            Text(name, below=(limit,)),
            rate(ladder.spread(knee)),
            *(share(latencies, name) for name in ("p50", "p90", "p99")),
            count(knee.row.connections),
            failed,
            plain(ladder.rate(best)),
            count(best.row.connections),
            _ratio(ladder, base),
        ),
        tuple(own),
    )


def _ratio(ladder: LadderLine, base: LadderLine) -> str:
    """Of the best requests/s to that of the first service of the size; text, as JSON has none."""
    value = ratio_of(ladder, base)
    return "-" if value is None else "1" if ladder is base else f"{value:.2f}"


def ratio_of(ladder: LadderLine, base: LadderLine) -> float | None:
    """Best over best; None where either has none."""
    if ladder.best is None or base.best is None:
        return None
    return ladder.rate(ladder.best) / base.rate(base.best)


def _limit(ladder: LadderLine, entry: Entry) -> str:
    if "num_replicas" not in ladder.cell:
        return f"what limited it is {NOT_VISIBLE}"
    return limit_words(entry.limited)


def _all_remarks(page: Page, ladder: LadderLine) -> tuple[Finding, ...]:
    entries = entries_of(ladder, page)
    return tuple(
        one.of(line.row.label) for line in ladder.steps for one in entries[line.row].findings
    )


# -------------------------------------------------------------------------------------- steps


def steps_table(page: Page, ladders: Sequence[LadderLine]) -> Table:
    """Every step of every ladder, doubts under the step that they are about."""
    lines = [line for ladder in ladders for line in ladder.steps]
    batched = any(BATCH_SIZE in line.distributions for line in lines)
    forward = any(_forward(line.trials) is not None for line in lines)
    sampled = any(_host(line.trials) != "-" for line in lines)
    columns = [
        Column("users"),
        Column("throughput", "requests/s"),
        *(Column(name, "ms") for name in ("p50", "p90", "p99")),
        Column("errors"),
        *([Column("batch", "requests")] if batched else []),
        *([Column("forward", "ms")] if forward else []),
        *([Column("host CPU", "% of a core")] if sampled else []),
        Column("mark", number=False),
    ]
    rows = []
    for name, ladder in zip(names_of(ladders), ladders, strict=True):
        entries = entries_of(ladder, page)
        for line in ladder.steps:
            cells: list[Cell] = [_users(line.row)]
            if MAIN in line.spreads:
                sizes = line.distributions.get(BATCH_SIZE)
                cells += [
                    rate(line.spreads[MAIN]),
                    *(share(line.distributions.get("latency"), of) for of in ("p50", "p90", "p99")),
                    errors(line.failed),
                ]
                cells += [_batch(None if sizes is None else sizes.mean)] if batched else []
                cells += [milliseconds(_forward(line.trials)).text] if forward else []
                cells += [_host(line.trials)] if sampled else []
            else:
                cells.append(Text(line.status, "doubt"))
            mark = ladder.mark(line) if MAIN in line.spreads else ""
            rows.append(
                Row(
                    (*padded(cells, len(columns) - 1), Text(mark, _TONES.get(mark, "plain"))),
                    entries[line.row].findings,
                    name if len(ladders) > 1 else "",
                )
            )
    notes = ["±: std over the windows (ddof 0). Errors are in no rate and no latency."]
    if batched:
        notes.append("Batch: the mean of the requests that a replica took at once, as it counted.")
    if sampled:
        notes.append("Host CPU: all that runs there, of all its cores, the client included.")
    return Table("Every step", tuple(columns), tuple(rows), tuple(notes))


_TONES: Final[Mapping[str, Tone]] = {
    "collapse": "bad",
    "this run fell": "bad",
    "in doubt": "doubt",
    "this run held": "quiet",
}


def _users(row: Load) -> Number:
    again = f" (run {row.run})" if row.run > 1 else ""
    return Number(f"{row.connections:,}{again}", row.connections)


def _batch(mean: float | None) -> Number:
    return NOTHING if mean is None else Number(f"{mean:.1f}", mean)


def _forward(trials: Sequence[Trial]) -> float | None:
    return mean_forward_ns(trial.forward for trial in trials)


def _host(trials: Sequence[Trial]) -> str:
    """Mean over launches, of all cores: `176 of 200`; `-` where it was not sampled."""
    hosts = [trial.usage["host"] for trial in trials if trial.usage.get("host")]
    shares = [host["cpu_percent"] for host in hosts if host.get("cpu_percent") is not None]
    if not shares:
        return "-"
    return f"{sum(shares) / len(shares):.0f} of {100 * int(hosts[0].get('cores', 1))}"
