"""What a scale run found, in sentences: that it is invalid, its rates, its growth, its doubts.

Rule: each sentence is made of figures that stand on the page; where they do not support one it is
not said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from serve_bench.benchmarks.parts.pieces import doubted, gaps, listed, sentence
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.benchmarks.scale.joined import ScaleEntry, ScalePage
from serve_bench.benchmarks.scale.summary import HTTP, Figure, Grown
from serve_bench.benchmarks.scale.tables import figure_text
from serve_bench.benchmarks.scale.words import replicas_words

RATE = "cluster_requests_per_s"


def found(page: ScalePage) -> Iterator[str]:
    """What the figures support: invalid results and gaps first, then rates or growth."""
    yield from (sentence(text) for text in page.invalid[:1])
    entries = page.entries
    missing = sum(one.gap is not None for one in entries)
    messages = [one.message for one in page.failures]
    messages += [one.message for part in page.variants for one in part.failures]
    messages += [one.message for entry in entries for one in entry.failures]
    messages += [
        f"node {node.ip} was lost: {node.lost}" for entry in entries for node in entry.size.lost
    ]
    yield from gaps(missing, len(entries), messages, "size")
    if not any(one.measured for one in entries):
        yield "Nothing was measured."
        return
    if page.workload == "curve":
        yield from _curve(page)
    elif page.graph:
        yield from _graph(page)
    else:
        yield from _rates(page)
    yield from doubted([one.warnings for one in entries], page.warnings, "size")


def _mean(entry: ScaleEntry, name: str) -> float | None:
    figure = entry.size.figures.get(name)
    return None if figure is None else figure.mean


def _rates(page: ScalePage) -> Iterator[str]:
    """Of single and multi: requests/s of all nodes under each variant, and to the first."""
    rated = [(one, rate) for one in page.entries if (rate := _mean(one, RATE)) is not None]
    if not rated:
        return
    said = []
    for entry, rate in rated:
        nodes = len({node.node for node in entry.size.nodes if node.lost is None})
        of = f" from {nodes} node{'' if nodes == 1 else 's'}" if nodes else ""
        p99 = _mean(entry, "cluster_P99_latency_ms")
        tail = "" if p99 is None else f", p99 {latency(p99)} ms"
        p50 = _mean(entry, "cluster_P50_latency_ms")
        half = "" if p50 is None else f" at p50 {latency(p50)} ms"
        said.append(f"{entry.title}: {number(rate)} requests/s{of}{half}{tail}")
    yield sentence("; ".join(said))
    yield from _limits([entry for entry, _ in rated])
    first = page.variants[0].name
    ratios = [
        f"{entry.size.variant} serves {line.ratio:.2f} times what {first} serves"
        for entry, _ in rated
        for line in entry.size.lines[:1]
        if line.ratio is not None
    ]
    if ratios:
        yield sentence("; ".join(ratios))


def _limits(entries: Sequence[ScaleEntry]) -> Iterator[str]:
    said = [f"{one.title}, {one.limits[0]}" for one in entries if one.limits]
    if said:
        yield sentence("; ".join(said[:2]))


def _graph(page: ScalePage) -> Iterator[str]:
    """Of ensemble and chain: through a handle, as published, and through HTTP."""
    for entry in page.entries:
        parts = []
        for way, words in (("", "through a handle"), (HTTP, "through HTTP")):
            rate = _mean(entry, f"{way}throughput_mean_tps")
            mean = _mean(entry, f"{way}latency_mean_ms")
            told = [] if rate is None else [f"{number(rate)} requests/s"]
            told += [] if mean is None else [f"a mean latency of {latency(mean)} ms"]
            if told:
                parts.append(f"{listed(told)} {words}")
        if parts:
            yield sentence(f"{entry.title}: {'; '.join(parts)}")


# --------------------------------------------------------------------------------------- curve


def _curve(page: ScalePage) -> Iterator[str]:
    """The best size of the first variants, then what grows with the number of replicas."""
    rated = [(one, rate) for one in page.entries if (rate := _mean(one, RATE)) is not None]
    if rated:
        best, most = max(rated, key=lambda pair: pair[1])
        own = [one for one in rated if one[0].size.variant == best.size.variant]
        last, rate = max(own, key=lambda pair: pair[0].size.replicas)
        name = best.title if len(page.variants) > 1 else replicas_words(best.size.replicas)
        verb = "serves" if best.size.replicas == 1 else "serve"
        said = f"{name} {verb} most, {number(most)} requests/s"
        if last is not best:
            said += f"; {replicas_words(last.size.replicas)} serve {number(rate)}"
        yield sentence(said)
    for part in page.variants[:2]:
        told = [
            f"{one.quantity.title} {one.fit.words} ({_ends(one)}; exponent {one.fit.text})"
            for one in part.grown
            if one.fit is not None and not one.fit.words.startswith("not told")
            if one.quantity.name in ("deploy_time", "memory_per_replica", "controller_loop")
        ]
        if told:
            name = f"{part.name}: " if len(page.variants) > 1 else "Over the replicas n, "
            yield sentence(f"{name}{'; '.join(told)}")


def _ends(grown: Grown) -> str:
    """`1.842 s to 33.89 s`."""
    (_, first), (_, last) = grown.points[0], grown.points[-1]
    return f"{_value(first)} to {_value(last)} {grown.quantity.unit}"


def _value(figure: Figure) -> str:
    return figure_text(figure, figure.mean)
