"""What the rows of a setting of a press run add up to, in lines: best, knee, collapse, client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from serve_bench.benchmarks.parts.pieces import percent
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.benchmarks.press.summary import Collapse, PressRow, RunFigure, Setting
from serve_bench.core.failed_requests import failures_of


def rate(value: float | None) -> str:
    """Requests/s with four digits; no commas, as in the published table."""
    return number(value).replace(",", "")


def clients(of: PressRow | int) -> str:
    """`1 client`, `1,000 clients`."""
    number_of = of if isinstance(of, int) else of.clients
    return f"{number_of:,} client{'' if number_of == 1 else 's'}"


def setting_lines(setting: Setting) -> Iterator[str]:
    """What the rows of a setting add up to, a line each."""
    if setting.first_ms:
        each = ", ".join(f"{latency(one)} ms" for one in setting.first_ms)
        yield f"first request after the start: {each}"
    if setting.settled:
        yield f"before the first row: {_settled(setting.settled)}"
    best, knee = setting.best, setting.knee
    if best is None or knee is None:
        sound = "no row can be relied on" if setting.ladder.finished else setting.ladder.without
        yield f"{sound}: no best, no knee"
    else:
        yield (
            f"best: {rate(setting.best_qps)} qps with {clients(best)}; knee: {clients(knee)}, "
            f"{rate(setting.ladder.rate(knee.line))} qps, p50 {latency(knee.p50_ms)} ms"
        )
        if not setting.collapses:
            yield _no_collapse(setting, best)
        for collapse in setting.collapses:
            yield from _collapse_lines(setting, collapse, best)
        for what, row in (("knee", knee), ("best", best)):
            if row.limited is not None and (what == "knee" or row is not knee):
                yield f"limited by, at the {what}: {row.limited.text}"
    yield from (f"sign: {sign}" for sign in setting.ladder.signs)
    yield from _client(setting)
    if setting.ladder.end != "the list is measured":
        yield setting.ladder.end


def _no_collapse(setting: Setting, best: PressRow) -> str:
    more = [row for row in setting.rows if row.clients > best.clients and row.qps is not None]
    if not more:
        return "no collapse: no row has more clients than the best, so none could be seen"
    return f"no collapse up to {clients(max(row.clients for row in more))}"


def _settled(settled: Sequence[Mapping[str, Any]]) -> str:
    """Of all launches: how long it took, and the median latency of one client then."""
    of = f" of {len(settled)} launches" if len(settled) > 1 else ""
    unjudged = sum(one.get("judged") is False for one in settled)
    missed = sum(not one.get("steady") for one in settled) - unjudged
    counts = {"had not settled": missed, "too slow to tell whether it had settled": unjudged}
    words = [f"{word} in {n}{of}," if of else word for word, n in counts.items() if n]
    seconds = _span([float(one.get("seconds", 0.0)) for one in settled], lambda s: f"{s:.1f}")
    p50 = _span([float(one["p50_ns"]) / 1e6 for one in settled if one.get("p50_ns")], latency)
    after = f"{' '.join(words) or 'settled'} after {seconds} s"
    return after + (f" (p50 of one client {p50} ms)" if p50 else "")


def _span(values: Sequence[float], text: Callable[[float], str]) -> str:
    """The least and the largest; one of them where they read alike; empty without any."""
    if not values:
        return ""
    return " to ".join(dict.fromkeys((text(min(values)), text(max(values)))))


def _client(setting: Setting) -> Iterator[str]:
    """What the client and the host used, and whether the client was ever the limit."""
    bound = [str(row.clients) for row in setting.rows if row.client_bound]
    shares = [row.use.client for row in setting.rows if row.use.client is not None]
    hosts = [row.use.host for row in setting.rows if row.use.host is not None]
    words = [f"up to {max(shares):.0f} % of a core"] if shares else []
    limit = f"the limit with {', '.join(bound)} clients" if bound else "never the limit"
    cores = next((row.use.cores for row in setting.rows if row.use.cores), None)
    if hosts and cores:
        words.append(f"host up to {max(hosts):.0f} of {100 * cores} %")
    if any(row.line.trials for row in setting.rows):
        yield f"client: {'; '.join([limit, *words])}"


def _collapse_lines(setting: Setting, collapse: Collapse, best: PressRow) -> Iterator[str]:
    """A collapse: how far, each of its runs, and what is not as in the best row."""
    at = collapse.at
    yield (
        f"collapse with {clients(at)}: {rate(collapse.qps)} qps, {collapse.share:.2f} of the best"
    )
    if len(collapse.runs) > 1:
        rounds = dict.fromkeys(one.round for one in collapse.runs)
        runs = "; ".join(
            (f"launch {round_}: " if len(rounds) > 1 else "")
            + ", ".join(_run_words(one) for one in collapse.runs if one.round == round_)
            for round_ in rounds
        )
        held = sum(not one.fell for one in collapse.runs)
        verdict = "they agree" if collapse.agree else "the runs disagree"
        if held:
            verdict += f": {held} of {len(collapse.runs)} did not fall"
        yield f"its {len(collapse.runs)} runs in qps: {runs}; {verdict}"
    else:
        yield "it was run once: a collapse is rarely the same twice"
    yield f"from the best row to this one: {'; '.join(_changes(setting, best, at))}"
    if at.limited is not None:
        yield f"limited by, with {clients(at)}: {at.limited.text}"


def _run_words(one: RunFigure) -> str:
    words = [
        rate(one.qps),
        f"with {one.errors} errors" if one.errors else "",
        "cut" if one.cut else "",
        "" if one.fell else "held",
    ]
    return " ".join(word for word in words if word)


def _changes(setting: Setting, best: PressRow, at: PressRow) -> Iterator[str]:
    """Errors, CPU, GPU and queueing, each `before -> after`."""
    failed = failures_of(at.line.trials)
    yield f"errors {best.line.errors} -> {at.line.errors}{f' ({failed})' if failed else ''}"
    if setting.visible:
        yield f"CPU {percent(best.use.service).text} -> {percent(at.use.service).text} %"
    if setting.device == "cuda":
        yield f"GPU {percent(best.use.gpu).text} -> {percent(at.use.gpu).text} %"
    yield f"p50 {latency(best.p50_ms)} -> {latency(at.p50_ms)} ms"
    cell = setting.cell
    slots = int(cell.get("max_concurrent_queries", 0)) * int(cell.get("num_replicas", 0))
    if slots:
        yield f"clients for {slots:,} slots {best.clients:,} -> {at.clients:,}"
    names = {"ongoing": "at work", "queued": "queued", "router_queue": "router queue"}
    for name, word in names.items():
        before, after = best.levels.get(name), at.levels.get(name)
        if before is not None or after is not None:
            yield f"{word} {number(before, 2)} -> {number(after, 2)}"
