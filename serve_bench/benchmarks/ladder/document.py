"""What a run of ladders says (sweep, recsys): knees, every step, rates and latency over users.

Rule: knee, best and collapse are those of summary.py, and all figures those of the JSON; a press
run is a ladder too and has a document of its own (benchmarks/press/document.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from serve_bench.analysis.statistics import MAIN, Line, merged
from serve_bench.benchmarks.ladder.charts import (
    Curve,
    curves_of,
    knee_curves,
    latency_charts,
    throughput_charts,
)
from serve_bench.benchmarks.ladder.summary import (
    NOT_VISIBLE,
    LadderLine,
    ServiceSummary,
    ladder_lines,
    services_of,
)
from serve_bench.benchmarks.micro.document import cpu_tables, evidence
from serve_bench.benchmarks.micro.summary import all_failures, names_of
from serve_bench.benchmarks.parts import waterfall
from serve_bench.benchmarks.parts.about_run import method, run_document
from serve_bench.benchmarks.parts.blocks import (
    NOTHING,
    Fields,
    count,
    cpu_of_rows,
    distinct,
    doubted,
    errors,
    gaps,
    host_percent,
    limit_words,
    milliseconds,
    page_doubts,
    percent,
    plain,
    rate,
    section,
    sentence,
    share,
    statement,
    table_of,
)
from serve_bench.benchmarks.parts.inside import gpu_percent, grouped_cpu, served_facts
from serve_bench.benchmarks.parts.published import RECSYS, reference
from serve_bench.benchmarks.parts.rows import NS_PER_MS, Page, page_of
from serve_bench.benchmarks.parts.texts import latency, number
from serve_bench.core.document import (
    Block,
    Cell,
    Charts,
    Column,
    Document,
    Facts,
    Finding,
    Folded,
    Number,
    Prose,
    ReportOptions,
    Section,
    Table,
    Text,
    Tone,
    sentences,
)
from serve_bench.core.ladder import KNEE
from serve_bench.core.result import Result
from serve_bench.core.usage import BATCH_SIZE, mean_forward_ns


def document(result: Result, options: ReportOptions) -> Document:
    """What a run of ladders says; of recsys with the published figures in tables of their own, if
    wanted."""
    page = page_of(result, where=options.where)
    services = services_of(page, ladder_lines(result))
    return run_document(
        result,
        options.where,
        findings=sentences(_findings(page, services)),
        doubts=page_doubts(page),
        sections=_sections(result, page, services, options.published),
        facts=tuple(("service", text) for text in _service_words(result)),
    )


def _service_words(result: Result) -> Iterator[str]:
    """The service in words: its tiers, its device, its batching. Of an app without a model its name
    says it all."""
    cell = (result.run.suite.get("cells") or [{}])[0]
    there = services_there(result)
    if there or "ranker" not in cell:
        yield from [there] if there else []
        return
    facts = next(iter(replicas_of(result)), {})
    device = str(facts.get("device", cell.get("device"))).upper()
    threads = facts.get("threads", cell.get("threads"))
    where = f"CPU, no GPU is used; {threads} thread{'s' if threads != 1 else ''} of torch a ranker"
    if device != "CPU":
        where = f"{facts.get('device_name') or device}, {cell.get('gpu_fraction'):g} GPU a ranker"
    each = cell.get("ingress_per_ranker")
    tiers = f"ingress ({each} replicas a ranker) -> DLRM ranker" if each else "DLRM ranker"
    yield (
        f"on {where}; torch {facts.get('torch', 'not asked')}; GET ?user_id=N -> {tiers}, "
        f"{cell.get('rows_per_request')} candidates per request, tables "
        f"{cell.get('sparse_features')} x {cell.get('table_rows') or 0:,} x {cell.get('width')}; "
        f"batches of up to {cell.get('max_batch_size')} requests, waiting up to "
        f"{cell.get('batch_wait_timeout_s')} s"
    )


def services_there(result: Result) -> str:
    """The services of others in words; empty where the run launched its own."""
    urls = result.run.suite.get("urls") or {}
    named = ", ".join(f"{name} {url}" for name, url in urls.items())
    return f"already running: {named}; what is inside is {NOT_VISIBLE}" if urls else ""


def replicas_of(result: Result) -> list[Mapping[str, Any]]:
    """What the replicas of all deploys say of themselves."""
    return [one for deploy in result.deploys for one in deploy.proof.get("replicas", ())]


def _findings(page: Page, services: Sequence[ServiceSummary]) -> Iterator[str]:
    """What the figures support: gaps, the best service, its limit, collapses, doubts."""
    steps = [(one.entries[line.row], line) for one in services for line in one.ladder.steps]
    missing = sum(line.status != "measured" for _, line in steps)
    yield from gaps(
        missing, len(steps), [failure.message for failure in all_failures(page)], "step"
    )
    sound = [one for one in services if one.knee is not None and one.best is not None]
    if not sound:
        ended = any(one.ladder.finished for one in services)
        why = "No valid step" if ended else "No ladder is complete"
        yield f"{why}: there is no knee and no best."
        return
    top = max(sound, key=lambda one: one.best_rate or 0.0)
    base = next(service for service in services if service.ladder is top.base)
    yield _headline(top, services, base)
    # The reason of a ratio may stand in the slower one.
    for one in [top, base] if base in sound and base is not top else [top]:
        if one.limit is not None:
            yield sentence(f"What limits {one.name} at its knee: {one.limit.text}")
    fallen = [
        f"{f'{one.name}: ' if len(sound) > 1 else ''}{next(_collapse_words(one))}"
        for one in sound
        if one.ladder.collapses
    ]
    if not fallen and all(max(one.ladder.rates) > _users(one.best) for one in sound):
        fallen = ["no collapse was seen"]
    if fallen:
        yield statement("; ".join(fallen), [one.name for one in sound])
    yield from doubted([entry.warnings for entry, _ in steps], noun="step")


def _headline(top: ServiceSummary, services: Sequence[ServiceSummary], base: ServiceSummary) -> str:
    """The highest requests/s, its knee, and how it stands to the first service of its size."""
    knee, best = top.knee, top.best
    assert knee is not None and best is not None
    most = "serves most," if len(services) > 1 else "serves at most"
    head = f"{top.name} {most} {number(top.best_rate)} requests/s with {users_words(best)}"
    if base is not top and top.ratio is not None:
        head += f", {top.ratio:.2f} times the best of {base.name}"
    times = knee.distributions.get("latency")
    waits = ""
    if times is not None:
        p50, p99 = (latency(value / NS_PER_MS) for value in (times.p50, times.p99))
        waits = f"p50 {p50} ms, p99 {p99} ms"
    if knee is best:
        head += f" ({waits})" if waits else ""
        if min(top.ladder.rates) < _users(knee):
            head += f", and no step with fewer users reaches {100 * KNEE:.0f} % of that"
        return sentence(head)
    inside = [f"{number(top.ladder.rate(knee))} requests/s", *([waits] if waits else [])]
    enough = f"{users_words(knee)} are enough for {100 * KNEE:.0f} % of that"
    return sentence(f"{head}; {enough} ({', '.join(inside)})")


def _users(line: Line | None) -> int:
    return 0 if line is None else line.row.connections


def users_words(line: Line) -> str:
    """`1 user`, `200 users`."""
    return f"{_users(line):,} user{'' if _users(line) == 1 else 's'}"


def _ladder_words(one: ServiceSummary) -> str:
    """What a ladder adds up to, in a line: its end, its collapses, its signs."""
    words = [one.ladder.end, *_collapse_words(one)]
    words += [f"sign: {sign}" for sign in one.ladder.signs]
    if one.knee is not None and one.knee is one.ladder.steps[0] and _users(one.knee) > 1:
        words.append("the first step is the knee already: fewer users may do (--users)")
    return f"{one.name}: {'; '.join(words)}."


def _collapse_words(one: ServiceSummary) -> Iterator[str]:
    if one.best is None:
        return
    if not one.ladder.collapses:
        last = max(one.ladder.rates)
        if last > _users(one.best):
            yield f"no collapse up to {last:,} users"
        else:
            yield "no step has more users than the best, so no collapse could be seen"
    for line in one.ladder.collapses:
        kept = one.ladder.rate(line)
        yield (
            f"collapse with {users_words(line)}: {number(kept)} requests/s, "
            f"{kept / (one.best_rate or kept):.2f} of the best"
        )


def _sections(
    result: Result, page: Page, services: Sequence[ServiceSummary], published: bool
) -> Iterator[Section]:
    if not services:
        nothing = Prose(("Nothing was measured.",), "doubt")
        yield Section("results", "Results", (nothing,), "headline")
    else:
        words = Prose(tuple(map(_ladder_words, services)), listed=True)
        yield Section("results", "Results", (_knees(services), words), "headline")
        if inside := [one for one in services if one.knee is not None and one.visible]:
            yield Section("inside", "Inside", (_inside(inside),), "table")
        yield Section("steps", "Steps", (_steps(services),), "table")
    if published and result.run.command == "recsys":
        yield Section("published", "Published", tuple(_published()), "table")
    yield from how(page)
    groups = _groups(services)
    yield from load_sections("users", groups)
    cpu = (*_cpu(services), *inside_blocks(page))
    yield from section("cpu", "CPU by process, and limits by step", cpu)
    yield from traced_sections((one.name, one.ladder) for one in services)
    yield method(result)


def traced_sections(ladders: Iterable[tuple[str, LadderLine]]) -> Iterator[Section]:
    """The hops of traced requests, of each ladder at its knee, its best, and its last step."""
    rows = []
    for name, ladder in ladders:
        shown = (ladder.knee, ladder.best, ladder.steps[-1])
        steps = [one for one in ladder.steps if any(one is other for other in shown)]
        rows += [waterfall.of_line(f"{name}, {one.row.label}", one) for one in steps]
    yield from waterfall.sections(rows)


def how(
    page: Page, definitions: Sequence[str] = (), without: tuple[str, ...] = ("ratio:",)
) -> Iterator[Section]:
    """What the figures are, how they were got, and what to try against what limited the rows. Notes
    of the page that begin with one of `without` are left out."""
    notes = (*definitions, *(one for one in page.notes if not one.startswith(without)))
    if notes:
        yield Section("how", "Notes", (Prose(notes, "quiet", listed=True),), "table")


def inside_blocks(page: Page) -> Iterator[Block]:
    """Batches of each row, CPU of each process, and what each verdict rests on; folded."""
    names = names_of(page)
    served = tuple(
        (names.whole(entry), fact)
        for entry in page.entries
        for fact in served_facts(entry.line.trials, entry.line.cell.get("max_batch_size", 1))
    )
    if served:
        yield Folded("Counts of the replicas", (Facts(served),))
    yield from cpu_tables(page)
    # The hints stand with how it was measured.
    yield from (one for one in evidence(page, names) if isinstance(one, Folded))


def load_sections(noun: str, groups: Mapping[str, Sequence[Curve]]) -> Iterator[Section]:
    """Requests/s and latency over the load, in charts. `noun`: what grows, users or clients."""
    rates = (
        block
        for name, curves in groups.items()
        for block in throughput_charts(_titled(f"Requests/s over {noun}", name), curves)
    )
    yield from section("throughput", f"Throughput over {noun}", rates)
    waits = (
        block
        for name, curves in groups.items()
        for block in latency_charts(_titled(f"Latency over {noun}", name), curves)
    )
    knees = (Charts(partial(knee_curves, curves, _titled("", of))) for of, curves in groups.items())
    yield from section("latency", "Latency", (*waits, *knees))


def _titled(what: str, name: str) -> str:
    return f"{what}: {name}" if name else what


def _groups(services: Sequence[ServiceSummary]) -> dict[str, list[Curve]]:
    """The ladders that share a chart: those of one size, or all where each has its own size."""
    sizes: dict[str, list[ServiceSummary]] = {}
    for one in services:
        sizes.setdefault(one.group, []).append(one)
    if len(sizes) < 2:
        return {"": curves_of([one.name for one in services], [one.ladder for one in services])}
    return {
        size: curves_of(distinct([one.label for one in own]), [one.ladder for one in own])
        for size, own in sizes.items()
    }


def _cpu(services: Sequence[ServiceSummary]) -> Iterator[Block]:
    """CPU at the knees; of each ladder over its steps, folded where there are several."""
    every: list[Block] = []
    for one in services:
        rows = [
            (line.row.label, line.trials, one.entries[line.row].limited)
            for line in one.ladder.steps
            if any(trial.usage for trial in line.trials)
        ]
        title = _titled("CPU at every step", one.name if len(services) > 1 else "")
        every += [Charts(partial(cpu_of_rows, title, rows))] if rows else []
    if len(services) == 1:
        yield from every
        return
    knees = [
        (f"{one.name}, {one.knee.row.label}", one.knee.trials, one.limit)
        for one in services
        if one.knee is not None
    ]
    yield Charts(partial(cpu_of_rows, "CPU at the knee", knees))
    if every:
        yield Folded("CPU at every step of each ladder", tuple(every))


LadderStep = tuple[ServiceSummary, Line]
_TONES: Final[Mapping[str, Tone]] = {
    "collapse": "bad",
    "this run fell": "bad",
    "in doubt": "doubt",
    "this run held": "quiet",
}


def mark_text(ladder: LadderLine, line: Line) -> Text:
    """What a step is to its ladder, with its tone."""
    mark = ladder.mark(line)
    return Text(mark, _TONES.get(mark, "plain"))


def clients_cell(line: Line) -> Number:
    """How many there were at once, and in which run of the step."""
    again = f" (run {line.row.run})" if line.row.run > 1 else ""
    return Number(f"{line.row.connections:,}{again}", line.row.connections)


def _ms(line: Line | None, name: str) -> Number:
    return NOTHING if line is None else share(line.distributions.get("latency"), name)


def _knee_rate(one: ServiceSummary) -> Cell:
    if one.knee is None:
        return Text(one.ladder.without, "doubt")
    return rate(one.ladder.spread(one.knee))


def _step_rate(line: Line) -> Cell:
    spread = line.spreads.get(MAIN)
    return Text(line.status, "doubt") if spread is None else rate(spread)


def _ratio(one: ServiceSummary) -> Cell:
    """Of the best requests/s to that of the first service of the size."""
    if one.ratio is None:
        return "-"
    return "1" if one.ladder is one.base else f"{one.ratio:.2f}"


def _limit_words(one: ServiceSummary) -> tuple[str, ...]:
    if one.knee is None:
        return ()
    return (limit_words(one.limit) if one.visible else f"what limited it is {NOT_VISIBLE}",)


def _tier(role: str) -> str:
    """Which tier a process is of, by its role."""
    for start, tier in _TIERS.items():
        if role.startswith(start):
            return tier
    return "others"


_TIERS: Final = {
    "replica Ranker": "ranker",
    "replica Ingress": "ingress",
    "replica": "replicas",
    "haproxy": "HTTP",
    "proxy": "HTTP",
}


def _cpu_of(one: ServiceSummary, tier: str) -> Number:
    usages = [] if one.knee is None else [trial.usage for trial in one.knee.trials]
    return percent(grouped_cpu(usages, _tier).groups.get(tier))


def _batch(line: Line | None, name: str, digits: int = 0) -> Number:
    sizes = merged(() if line is None else line.trials, BATCH_SIZE)
    if not sizes.count:
        return NOTHING
    value = sizes.percentile(0.5) if name == "p50" else getattr(sizes, name)
    return Number(f"{value:.{digits}f}", value)


def _forward(line: Line | None) -> Cell:
    trials = () if line is None else line.trials
    return milliseconds(mean_forward_ns(trial.forward for trial in trials))


def host_cell(line: Line | None) -> Number:
    """Mean over launches, of all cores: `176 of 200`."""
    return host_percent(grouped_cpu([] if line is None else [t.usage for t in line.trials], str))


def _gpu(one: ServiceSummary) -> Cell:
    """Use of all GPUs together; a ranker on a CPU uses none."""
    if one.knee is None or one.ladder.cell.get("device") != "cuda":
        return "-"
    shares = [gpu_percent(trial) for trial in one.knee.trials]
    known = [share for share in shares if share is not None]
    return percent(statistics.fmean(known)) if known else NOT_VISIBLE


KNEES: Final[Fields[ServiceSummary]] = (
    (Column("service", number=False), lambda one: Text(one.label, below=_limit_words(one))),
    (Column("at the knee", "requests/s"), _knee_rate),
    (Column("users"), lambda one: count(_users(one.knee) or None)),
    (Column("p50", "ms"), lambda one: _ms(one.knee, "p50")),
    (Column("p90", "ms", detail=True), lambda one: _ms(one.knee, "p90")),
    (Column("p99", "ms"), lambda one: _ms(one.knee, "p99")),
    (
        Column("errors", "all steps", detail=True),
        lambda one: count(one.ladder.errors, "bad" if one.ladder.errors else "plain"),
    ),
    (Column("best", "requests/s"), lambda one: plain(one.best_rate)),
    (Column("best at", "users", detail=True), lambda one: count(_users(one.best) or None)),
    (Column("ratio", "of the best"), _ratio),
)
INSIDE: Final[Fields[ServiceSummary]] = (
    (Column("service", number=False), lambda one: one.label),
    (Column("batch", "mean"), lambda one: _batch(one.knee, "mean", 1)),
    (Column("batch p50", detail=True), lambda one: _batch(one.knee, "p50")),
    (Column("batch max", detail=True), lambda one: _batch(one.knee, "max")),
    (Column("forward", "ms"), lambda one: _forward(one.knee)),
    (Column("ranker", "CPU %"), lambda one: _cpu_of(one, "ranker")),
    (Column("ingress", "CPU %"), lambda one: _cpu_of(one, "ingress")),
    (Column("replicas", "CPU %"), lambda one: _cpu_of(one, "replicas")),
    (Column("HTTP", "CPU %"), lambda one: _cpu_of(one, "HTTP")),
    (Column("host", "CPU %"), lambda one: host_cell(one.knee)),
    (Column("GPU", "%"), _gpu),
)
"""At the knee."""
STEPS: Final[Fields[LadderStep]] = (
    (Column("users"), lambda one: clients_cell(one[1])),
    (Column("throughput", "requests/s"), lambda one: _step_rate(one[1])),
    (Column("p50", "ms"), lambda one: _ms(one[1], "p50")),
    (Column("p90", "ms", detail=True), lambda one: _ms(one[1], "p90")),
    (Column("p99", "ms"), lambda one: _ms(one[1], "p99")),
    (Column("max", "ms", detail=True), lambda one: _ms(one[1], "max")),
    (Column("errors"), lambda one: errors(one[1].failed)),
    (Column("batch", "requests", detail=True), lambda one: _batch(one[1], "mean", 1)),
    (Column("forward", "ms", detail=True), lambda one: _forward(one[1])),
    (Column("host", "CPU %", detail=True), lambda one: host_cell(one[1])),
    (Column("mark", number=False), lambda one: mark_text(one[0].ladder, one[1])),
)
PUBLISHED: Final[Fields[Mapping[str, Any]]] = (
    (Column("service", number=False), lambda row: str(row["variant"])),
    (Column("users"), lambda row: str(row["users"])),
    (Column("throughput", "requests/s"), lambda row: str(row["req_s"])),
    (Column("p50", "ms"), lambda row: str(row["p50_ms"])),
    (Column("p90", "ms"), lambda row: str(row["p90_ms"])),
    (Column("p99", "ms"), lambda row: str(row.get("p99_ms", "-"))),
)


def _knees(services: Sequence[ServiceSummary]) -> Table:
    groups = list(dict.fromkeys(one.group for one in services))
    return table_of(
        f"At saturation: the fewest users with {100 * KNEE:.0f} % of the best requests/s",
        KNEES,
        sorted(services, key=lambda one: groups.index(one.group)),
        (
            "Users: closed loop, each a connection that asks again at once. ±: std over the "
            "windows (ddof 0). Ratio: of the best requests/s, to that of the first service of the "
            "same size.",
        ),
        _knee_doubts,
        lambda one: one.group,
    )


def _knee_doubts(one: ServiceSummary) -> list[Finding]:
    """Of the knee and of the best; of all steps where there is neither."""
    if one.knee is None or one.best is None:
        steps = {line.row.label: line for line in one.ladder.steps}
        return brief({where: one.entries[line.row].findings for where, line in steps.items()})
    knee, best = (one.entries[line.row].findings for line in (one.knee, one.best))
    return at_both(knee, [] if one.best is one.knee else best)


def at_both(knee: Sequence[Finding], best: Sequence[Finding]) -> list[Finding]:
    """What is doubted of the knee, and of the best."""
    return brief({"at the knee": knee, "at the best": best})


def brief(findings: Mapping[str, Sequence[Finding]]) -> list[Finding]:
    """Findings by what they are about, without the sentences, which stand at the steps themselves:
    `at the knee, at the best: few-windows`."""
    places: dict[Finding, dict[str, None]] = {}
    for where, some in findings.items():
        for one in some:
            short = Finding("" if one.code else one.text, one.code, one.tone)
            places.setdefault(short, {})[where] = None
    return [replace(one, about=", ".join(where)) for one, where in places.items()]


def _inside(services: Sequence[ServiceSummary]) -> Table:
    cpu = (
        "CPU: all processes of the tier, 100 % is one core; host: of all its cores, the client "
        "included."
    )
    batch = (
        "Batch: requests that a replica took at once, as it counted them, warm-up included; "
        "forward: the model for a batch, from features as they came to scores."
    )
    batched = any(_batch(one.knee, "mean") != NOTHING for one in services)
    notes = (batch, cpu) if batched else (cpu,)
    caption = "Batches and CPU at the same loads" if batched else "CPU at the same loads"
    return table_of(caption, INSIDE, services, notes, group=lambda one: one.group)


def _steps(services: Sequence[ServiceSummary]) -> Table:
    return table_of(
        "Every step",
        STEPS,
        [(one, line) for one in services for line in one.ladder.steps],
        (
            "±: std over the windows (ddof 0). Errors are in no rate and no latency. Host: all "
            "that runs there, of all its cores, the client included.",
        ),
        lambda one: one[0].entries[one[1].row].findings,
        lambda one: one[0].name if len(services) > 1 else "",
    )


def _published() -> Iterator[Table]:
    first = reference(RECSYS)
    rows = [
        {"variant": f"{row['gpu_replicas']} GPU, {name}", **row[key]}
        for row in first["rows"]
        for key, name in (("oss", "open source"), ("turbo", "Turbo"))
    ]
    for about, every in ((first, rows), (first["later"], first["later"]["rows"])):
        caption = f"Published, not measured here: {about['source']}; {about['hardware']}"
        yield table_of(caption, PUBLISHED, every)
