"""The page of a run of rpc: agent and observers of each world on each backend.

Rule: figures are those of rpc_json (seconds, requests/s), shown in ms where they are latencies;
doubts stand under the world that they are about. The x axis is the one argument that was swept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.benchmarks.parts.about_run import GENERAL_FORMULAS, asked, machine, method
from serve_bench.benchmarks.parts.pieces import doubted, gaps, listed, section, sentence, whole_run
from serve_bench.benchmarks.parts.published import rpc_published
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.benchmarks.rpc.joined import MOST_NAMED, RpcEntry, RpcPage, rpc_page
from serve_bench.benchmarks.rpc.page_charts import (
    cpu_chart,
    latency_charts,
    percentile_charts,
    rate_charts,
    window_charts,
)
from serve_bench.benchmarks.rpc.page_rows import (
    figures_table,
    inside_table,
    percentiles_table,
    ratios_table,
)
from serve_bench.benchmarks.rpc.printed_form import printed_form
from serve_bench.benchmarks.rpc.tables import OBSERVER_LATENCY, cpu_ms_a_call
from serve_bench.benchmarks.rpc.text import asked as asked_lines
from serve_bench.benchmarks.rpc.text import notes
from serve_bench.core.document import (
    Block,
    Code,
    Document,
    Facts,
    Folded,
    Prose,
    ReportOptions,
    Section,
)
from serve_bench.core.result import Result

OPEN: Final = 2
"""Charts of episodes that stand open."""

_SOURCE: Final = "docs/rpc.md, as published: Distributed RPC Benchmark (PyTorch)"

FORMULAS: Final = (
    (
        "agent latency",
        "from the first request of a batch that the agent took up until each request of the batch "
        "has its action",
        _SOURCE,
    ),
    ("agent throughput", "batch_size / agent latency, batch by batch", _SOURCE),
    ("observer latency", "from an observer's call until it has its action", _SOURCE),
    ("observer throughput", "1 / observer latency, call by call", _SOURCE),
    (
        "percentile of a throughput",
        "the p-th of n samples is batch_size / the k-th largest latency, k = ceil(p n)",
        "serve_bench/benchmarks/rpc/summary.py",
    ),
    (
        "requests/s of all observers",
        "calls of an episode / time of the episode; mean ± std (ddof 0) over episodes",
        "docs/rpc.md",
    ),
    (
        "ratio",
        "median / median of the same world on the first backend; of requests/s mean / mean",
        "docs/rpc.md",
    ),
    (
        "CPU of a call",
        "ms = 10 x CPU % of all processes of the world / requests/s",
        "docs/rpc.md; serve_bench/benchmarks/rpc/tables.py",
    ),
)
"""Beside those that hold for all runs."""


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of rpc says, with its source's example below the tables, if wanted."""
    where, published = options.where, options.published
    run, page = result.run, rpc_page(result, where)
    worlds = tuple(_pair(line) for line in asked_lines(page))
    return Document(
        title=f"serve-bench rpc, run {run.id}",
        command=run.command,
        run=Facts((*asked(run).pairs, *worlds, *_versions(page))),
        machine=machine(run),
        findings=tuple(found(page)),
        doubts=tuple(whole_run(page.warnings, page.failures)),
        sections=tuple(_sections(result, page, published)),
        where=where,
        argv=run.argv,
    )


def _pair(line: str) -> tuple[str, str]:
    """What was asked, under a name: of the policy, of an episode, else of the world."""
    for name, before in (("policy", "policy: "), ("episode", "an episode: ")):
        if line.startswith(before):
            return name, line.removeprefix(before)
    return "world", line


def _versions(page: RpcPage) -> Iterator[tuple[str, str]]:
    """Of each backend, as its trials tell; several where they differ."""
    for backend in page.backends:
        found = [
            ", ".join(f"{name} {value}" for name, value in versions.items() if value)
            for entry in page.of(backend)
            for trial in entry.point.trials
            if (versions := trial.client.get("versions"))
        ]
        if found:
            yield f"backend {backend}", " / ".join(dict.fromkeys(found))


def _sections(result: Result, page: RpcPage, published: bool) -> Iterator[Section]:
    yield from section("results", f"Results over {page.x_axis}", _results(result, page, published))
    yield from section("throughput", f"Throughput over {page.x_axis}", rate_charts(page))
    latencies = (*latency_charts(page), *percentile_charts(page))
    yield from section("latency", f"Latency over {page.x_axis}", latencies)
    yield from section("windows", "Episodes over time", _episodes(page))
    yield from section("cpu", "CPU and memory, and what limited each world", _inside(page))
    yield method(result, (*GENERAL_FORMULAS, *FORMULAS))


def _results(result: Result, page: RpcPage, published: bool) -> Iterator[Block]:
    if not page.entries:
        yield Prose(("Nothing was planned.",), "doubt")
        return
    yield figures_table(page)
    measured = [one for one in page.entries if one.point.figures]
    if any(one.point.ratios for one in measured):
        yield ratios_table(page)
    if measured:
        yield Folded("What the figures mean", (Prose(tuple(notes(page)), listed=True),))
        yield Folded("Every percentile of the four metrics", (percentiles_table(page),))
        printed = "\n".join(printed_form(result))
        yield Folded("As PyTorch's benchmark prints it", (Code(printed),))
    if published:
        yield Folded("Published, not measured here", (Prose(rpc_published(), "quiet"),))


def _episodes(page: RpcPage) -> Iterator[Block]:
    """The first charts, the others folded: each world on each backend can have one."""
    every = list(window_charts(page))
    yield from every[:OPEN]
    if rest := every[OPEN:]:
        title = f"The other {len(rest)} charts" if len(rest) > 1 else "The other chart"
        yield Folded(title, tuple(rest))


def _inside(page: RpcPage) -> Iterator[Block]:
    yield from cpu_chart(page)
    if table := inside_table(page):
        yield table


# --------------------------------------------------------------------------------------- found


def found(page: RpcPage) -> Iterator[str]:
    """What the figures support: gaps, the fastest backend at the last world, what a call costs."""
    entries = page.entries
    missing = sum(one.gap is not None for one in entries)
    messages = [one.message for one in page.failures]
    messages += [one.message for entry in entries for one in entry.failures]
    yield from gaps(missing, len(entries), messages, "world")
    if not any(one.point.figures for one in entries):
        yield "Nothing was measured."
        return
    yield _headline(page)
    yield from _costs(page)
    yield from doubted([one.warnings for one in entries], page.warnings, "world")


def _headline(page: RpcPage) -> str:
    """Of several backends the one with the most calls/s and the others beside it, at the last point
    of the x axis where most were measured, at the fastest where the axis has no order; of one
    backend, its worlds."""
    if len(page.backends) == 1:
        worlds = [_rate(one) for one in page.entries if one.point.figures]
        return sentence(f"{page.backends[0]} answers {'; '.join(worlds)}")
    in_order = all(x.isdigit() for x in page.xs)

    def rank(x: str) -> tuple[int, float]:
        rated = _rated(page, x)
        fastest = max((one.point.line.spreads[MAIN].mean for one in rated), default=0.0)
        return len(rated), page.xs.index(x) if in_order else fastest

    most = max(page.xs, key=rank)
    ranked = _rated(page, most)
    if not ranked:
        return "No world can be relied on."
    first, *others = sorted(ranked, key=lambda one: -one.point.line.spreads[MAIN].mean)
    rate = first.point.line.spreads[MAIN].mean
    said = f"With {page.x_axis} {most}, {first.point.backend} answers most: {_rate(first, '')}"
    beside = [
        f"{one.point.backend} {one.point.line.spreads[MAIN].mean / rate:.2g} of that "
        f"(p50 {_p50(one)} ms)"
        for one in others
        if rate
    ]
    return sentence("; ".join([said, *beside]))


def _rated(page: RpcPage, x: str) -> list[RpcEntry]:
    """Those that are compared: measured, and by nothing that broke."""
    return [
        one
        for one in page.at(x)
        if one.point.figures and MAIN in one.point.line.spreads and not one.point.line.broken
    ]


def _rate(entry: RpcEntry, at: str | None = None) -> str:
    """`2,748 calls/s at world_size 10 (an observer waits 3.41 ms, p50)`."""
    spread = entry.point.line.spreads.get(MAIN)
    place = f" at {entry.x_axis} {entry.point.x}" if at is None else at
    mean = number(None if spread is None else spread.mean)
    return f"{mean} calls/s of all observers{place} (an observer waits {_p50(entry)} ms, p50)"


def _p50(entry: RpcEntry) -> str:
    return latency(1e3 * entry.point.figures[OBSERVER_LATENCY].percentiles[50])


def _costs(page: RpcPage) -> Iterator[str]:
    """What was full, and the CPU that a call takes on each backend, at most and at least."""
    costs: dict[str, list[float]] = {}
    full: dict[str, list[str]] = {}
    for one in page.entries:
        cost = cpu_ms_a_call(one)
        if cost is not None:
            costs.setdefault(one.point.backend, []).append(cost)
        if one.use.limited:
            place = f"{one.x_axis} {one.point.x}"
            named = f"{one.point.backend} ({place})" if len(page.backends) > 1 else place
            full.setdefault(one.use.limited, []).append(named)
    words = [
        f"the {what} was full with {listed(names[:MOST_NAMED])}"
        + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
        for what, names in full.items()
    ]
    each = [
        f"{' to '.join(dict.fromkeys(number(end, 3) for end in (min(own), max(own))))} on {name}"
        for name, own in costs.items()
    ]
    if each:
        said = f"a call takes, in ms of a core over all processes, {', '.join(each)}"
        words.append(said)
    if words:
        text = "; ".join(words)
        yield sentence(text[0].upper() + text[1:])
