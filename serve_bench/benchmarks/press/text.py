"""The report of a press run: what was asked, each setting with its table, all of them compared.

Rule: the settings of the service stand beside the published ones, and those are never called
measured here. Tables are in tables.py, the other forms in forms.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from serve_bench.benchmarks.ladder.tables import entries_of
from serve_bench.benchmarks.ladder.text import about_variants, closing
from serve_bench.benchmarks.parts.page import page_of
from serve_bench.benchmarks.parts.published import PRESS, press_table, reference
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.benchmarks.press.compare import comparisons
from serve_bench.benchmarks.press.summary import (
    Collapse,
    PressRow,
    RunFigure,
    Setting,
    axis_words,
    settings_of,
)
from serve_bench.benchmarks.press.tables import (
    LIMITS,
    compared_table,
    cpu,
    gpu,
    published_rows,
    rate,
    ratios_table,
    rows_text,
)
from serve_bench.core.failed_requests import failures_of
from serve_bench.core.ladder import COLLAPSE, KNEE
from serve_bench.core.result import Result
from serve_bench.report.columns import columns, wrapped


def press_text(
    result: Result,
    published: bool,
    where: str | None,
    width: int = 80,
    exclude_connect: bool = False,
) -> str:
    """The run as text that ends with a newline. `exclude_connect` sets totalTime and qps without
    the time to connect under those with it; `published` sets the published tables below."""
    page, settings = page_of(result), settings_of(result)
    out = wrapped(page.title, width, hang=0)
    for line in asked(result):
        out += wrapped(line, width)
    out += ["", *_beside(result, settings, width), "", *about_variants(page, width)]
    for setting in settings:
        out += ["", *wrapped(f"SETTING {setting.name}{_launches(setting)}", width)]
        entries = entries_of(setting.ladder, page)
        out += rows_text(setting, entries, exclude_connect, width)
        for line in told(setting):
            out += wrapped(line, width)
        out += _published(setting, result, width) if published else ()
    out += ["", *_compared(settings, width)] if any(one.best for one in settings) else ()
    out += closing(page, _NOTES, where, width, without=("ratio:", "requests/s:", "hint, offered"))
    return "\n".join(out) + "\n"


_NOTES: Final = (
    "aveTime: mean latency; totalTime: from the first connection begun to the last answer; qps: "
    "completed requests over it. p50, p99: of completed requests. CPU: all processes of the "
    "service, 100 % = one core; the client's workers and the rest of the host are not in it.",
    LIMITS,
    f"best: the highest qps; knee: the fewest clients with {100 * KNEE:.0f} % of it; collapse: "
    f"more clients than the best and below {100 * COLLAPSE:.0f} % of it; a row counts by the "
    "median of its runs.",
)


# ------------------------------------------------------------------------------ what was asked


def asked(result: Result) -> Iterator[str]:
    """The service, the requests and the client in words."""
    suite = result.run.suite
    urls = suite.get("urls")
    if urls:
        named = ", ".join(f"{name} {url}" for name, url in urls.items())
        yield f"service: there already: {named}; what is inside it is not visible"
    else:
        yield f"service: {_app(result)}"
    each = suite.get("requests_per_client")
    count = "requests" if each is None else f"{each} requests"
    yield (
        f"client: raw, closed loop: each client is a connection that sends {count}, one after "
        f"the other; a row ends after {suite.get('max_row_s', 0):g} s at the latest, a request "
        f"after {suite.get('timeout_s', 0):g} s"
    )


def _app(result: Result) -> str:
    cell = (result.run.suite.get("cells") or [{}])[0]
    samples = cell.get("rows_per_request")
    request = f"a JSON request of {samples} samples, {cell.get('sparse_features')} strings each"
    if result.run.suite.get("app") == "press_noop":
        return f"{request} -> an app that answers at once, no model"
    replicas = [one for deploy in result.deploys for one in deploy.proof.get("replicas", ())]
    facts = replicas[0] if replicas else {}
    torch = f", torch {facts['torch']}" if facts.get("torch") else ""
    return (
        f"{request}, hashed to ids -> DLRM ranker ({cell.get('ranker')}; tables "
        f"{cell.get('sparse_features')} x {cell.get('table_rows', 0):,} x {cell.get('width')}"
        f"{torch})"
    )


def _beside(result: Result, settings: Sequence[Setting], width: int) -> Iterator[str]:
    """Settings here, and what stands for them in the published run."""
    told, most = reference(PRESS), result.run.suite.get("ladder") or {}
    service, cells = told["service"], [one.cell for one in settings if one.cell]
    steps = [row.clients for one in settings for row in one.rows]
    clients = f"clients up to {max([*(most.get('steps') or ()), *steps], default=0):,}"
    rows = [(clients, f"at most {service['max_connection']:,} connections")]
    if cells:
        samples, size = _values(cells, "rows_per_request"), _values(cells, "max_batch_size")
        levels = " / ".join(_values(cells, "log_level"))
        devices = {one.device for one in settings if one.device}
        on = " / ".join(axis_words("device", one) for one in sorted(devices)) or "no model"
        rows = [
            (_axis(cells, "num_replicas"), f"{service['batch_threads']} batch threads"),
            (_axis(cells, "max_concurrent_queries"), f"{service['worker_count']} workers"),
            (_axis(cells, "max_queued_requests"), f"queue of {service['batch_queue']} batches"),
            (
                f"max_batch_size {' / '.join(size)} of {' / '.join(samples)} samples",
                f"batches of {service['batch_size']} samples",
            ),
            *rows,
            (f"log level {levels}", "2 / 3 / 5 (taken for DEBUG / INFO / ERROR)"),
            (f"on {on}", told["hardware"]),
        ]
    yield from columns(("here", "published, not measured here"), rows, (0, 1), width)


def _axis(cells: Sequence[Mapping[str, Any]], axis: str) -> str:
    values = " / ".join(_values(cells, axis))
    return f"{axis} {values}" + (" (no limit)" if values == "-1" else "")


def _values(cells: Sequence[Mapping[str, Any]], axis: str) -> list[str]:
    return list(dict.fromkeys(str(cell.get(axis, "-")) for cell in cells))


# ----------------------------------------------------------------------------- under a table


def _launches(setting: Setting) -> str:
    """Several launches are said: times are then their mean, errors all of them."""
    count = setting.launches
    return f": mean of {count} launches, errors of all" if count > 1 else ""


def told(setting: Setting) -> Iterator[str]:
    """What the table of a setting adds up to, a line each."""
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
            f"best: {rate(setting.best_qps)} qps with {_clients(best)}; knee: {_clients(knee)}, "
            f"{rate(setting.ladder.rate(knee.line))} qps, p50 {latency(knee.p50_ms)} ms"
        )
        if not setting.collapses:
            yield _no_collapse(setting, best)
        for collapse in setting.collapses:
            yield from collapsed(setting, collapse, best)
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
    return f"no collapse up to {max(row.clients for row in more):,} clients"


def _settled(found: Sequence[Mapping[str, Any]]) -> str:
    """Of all launches: how long it took, and the median latency of one client then."""
    of = f" of {len(found)} launches" if len(found) > 1 else ""
    unjudged = sum(one.get("judged") is False for one in found)
    missed = sum(not one.get("steady") for one in found) - unjudged
    words = {"had not settled": missed, "too slow to tell whether it had settled": unjudged}
    told = [f"{word} in {n}{of}," if of else word for word, n in words.items() if n]
    word = " ".join(told) or "settled"
    seconds = _span([float(one.get("seconds", 0.0)) for one in found], lambda s: f"{s:.1f}")
    p50 = _span([float(one["p50_ns"]) / 1e6 for one in found if one.get("p50_ns")], latency)
    return f"{word} after {seconds} s" + (f" (p50 of one client {p50} ms)" if p50 else "")


def _span(values: Sequence[float], text: Callable[[float], str]) -> str:
    """The least and the largest; one of them where they read alike; empty without any."""
    if not values:
        return ""
    return " to ".join(dict.fromkeys((text(min(values)), text(max(values)))))


def _clients(row: PressRow) -> str:
    return f"{row.clients:,} client{'' if row.clients == 1 else 's'}"


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


def collapsed(setting: Setting, collapse: Collapse, best: PressRow) -> Iterator[str]:
    """A collapse: how far, each of its runs, and what is not as in the best row."""
    at = collapse.at
    yield (
        f"COLLAPSE with {_clients(at)}: {rate(collapse.qps)} qps, {collapse.share:.2f} of the best"
    )
    rounds = dict.fromkeys(one.round for one in collapse.runs)
    runs = "; ".join(
        (f"launch {round_}: " if len(rounds) > 1 else "")
        + ", ".join(_run(one) for one in collapse.runs if one.round == round_)
        for round_ in rounds
    )
    held = sum(not one.fell for one in collapse.runs)
    verdict = "they agree" if collapse.agree else "THE RUNS DISAGREE"
    if held:
        verdict += f": {held} of {len(collapse.runs)} did not fall"
    if len(collapse.runs) > 1:
        yield f"  its {len(collapse.runs)} runs in qps: {runs}; {verdict}"
    else:
        yield "  it was run once: a collapse is rarely the same twice"
    yield f"  from the best row to this one: {'; '.join(changes(setting, best, at))}"
    if at.limited is not None:
        yield f"  limited by: {at.limited.text}"


def _run(one: RunFigure) -> str:
    words = [
        rate(one.qps),
        f"with {one.errors} errors" if one.errors else "",
        "cut" if one.cut else "",
        "" if one.fell else "held",
    ]
    return " ".join(word for word in words if word)


def changes(setting: Setting, best: PressRow, at: PressRow) -> Iterator[str]:
    """Errors, CPU, GPU and queueing, each `before -> after`."""
    failed = failures_of(at.line.trials)
    yield f"errors {best.line.errors} -> {at.line.errors}{f' ({failed})' if failed else ''}"
    if setting.visible:
        yield f"CPU {cpu(setting, best)} -> {cpu(setting, at)} %"
    if setting.device == "cuda":
        yield f"GPU {gpu(setting, best)} -> {gpu(setting, at)} %"
    yield f"p50 {latency(best.p50_ms)} -> {latency(at.p50_ms)} ms"
    slots = int(setting.cell.get("max_concurrent_queries", 0)) * int(
        setting.cell.get("num_replicas", 0)
    )
    if slots:
        yield f"clients for {slots:,} slots {best.clients:,} -> {at.clients:,}"
    names = {"ongoing": "at work", "queued": "queued", "router_queue": "router queue"}
    for name, word in names.items():
        before, after = best.levels.get(name), at.levels.get(name)
        if before is not None or after is not None:
            yield f"{word} {number(before, 2)} -> {number(after, 2)}"


# ------------------------------------------------------------------- published and compared


def _published(setting: Setting, result: Result, width: int) -> Iterator[str]:
    """The published table of the same device and log level."""
    told_there, table = reference(PRESS), press_table(setting.device, setting.log_level)
    yield ""
    if table is None:
        yield from wrapped(f"PUBLISHED: there is no table like {setting.name}", width)
        return
    head = (
        f"PUBLISHED, not measured here: {told_there['source']}; {told_there['hardware']}; "
        f"{table['device']}, log level {table['log_level']}; CPU {table['cpu_percent']} %, GPU "
        f"{table['gpu_percent']} %"
    )
    yield from wrapped(head, width)
    yield from published_rows(table, told_there["requests_per_client"]).text(width, 2)


def _compared(settings: Sequence[Setting], width: int) -> Iterator[str]:
    """All settings in one table; what an axis is worth, with the ratio of every launch."""
    yield from wrapped("ALL SETTINGS: best; CPU, GPU and limit are at the knee", width)
    yield from compared_table(settings).text(width)
    for one in comparisons(settings):
        yield ""
        yield from wrapped(one.sentence, width)
        if len(one.rounds) > 1:
            yield from ratios_table(one).text(width, 2)
