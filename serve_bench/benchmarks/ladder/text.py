"""The report of a run of ladders (recsys, sweep): what was asked, the tables, how to read them.

Rule: which suite it was is said once, at the top; tables are in tables.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from serve_bench.analysis.statistics import Line
from serve_bench.benchmarks.ladder.summary import LadderLine, ladder_lines
from serve_bench.benchmarks.ladder.tables import (
    SATURATED,
    grouped,
    inside,
    inside_names,
    ladder_steps,
    limits,
    saturated,
)
from serve_bench.benchmarks.micro.json_form import json_text
from serve_bench.benchmarks.parts.page import Page, page_of
from serve_bench.benchmarks.parts.published import RECSYS, reference
from serve_bench.benchmarks.parts.texts import remark
from serve_bench.core.ladder import KNEE
from serve_bench.core.result import Result
from serve_bench.core.usage import mean_forward_ns
from serve_bench.report.columns import columns, wrapped


def ladder_text(result: Result, published: bool, where: str | None, width: int = 80) -> str:
    """The run as text that ends with a newline."""
    page, ladders = page_of(result), ladder_lines(result)
    out = [*wrapped(page.title, width, hang=0), *wrapped(_service(result), width), ""]
    out += about_variants(page, width)
    if any(ladder.knee is not None for ladder in ladders):
        head = f"AT SATURATION: the fewest users with {100 * KNEE:.0f} % of the best req/s"
        out += ["", *wrapped(head, width)]
        out += grouped(ladders, SATURATED, saturated, width)
        out += ["", "INSIDE, at the same loads"]
        out += grouped(ladders, inside_names(ladders), inside, width)
        out += ["", "LIMITED BY, at the same loads", *limits(ladders, page, width)]
    for ladder in ladders:
        out += ["", *ladder_steps(ladder, page, width)]
    recsys = result.run.command == "recsys"
    out += ["", *_published(width)] if published and recsys else []
    out += closing(page, _NOTES, where, width)
    return "\n".join(out) + "\n"


def about_variants(page: Page, width: int) -> Iterator[str]:
    """Each variant as it was engaged, with what failed or is doubted about it as a whole."""
    for part in page.variants:
        if part.engaged or part.env:
            flags = " ".join(part.env) or "no flags"
            yield from wrapped(f"variant {part.name}: {flags}", width)
            yield from wrapped(part.engaged, width, indent=2)
        for warning in part.warnings:
            yield from wrapped(f"! {remark(warning)}", width)
        struck = [*part.failures, *(one for cell in part.cells for one in cell.failures)]
        for one in struck:
            yield from wrapped(f"failed: {one.what}: {one.message}", width)


def closing(
    page: Page,
    notes: Sequence[str],
    where: str | None,
    width: int,
    without: tuple[str, ...] = ("ratio:",),
) -> Iterator[str]:
    """What is about the whole run: failures, doubts, how to read it, host, records. Of the page's
    own notes those that begin with one of `without` are left out."""
    yield ""
    for one in page.failures:
        yield from wrapped(f"failed: {one.what}: {one.message}", width)
    for warning in page.warnings:
        yield from wrapped(f"! {remark(warning)}", width)
    others = [note for note in page.notes if not note.startswith(without)]
    for note in (*notes, *others, f"host: {page.host}"):
        yield from wrapped(note, width)
    if where is not None:
        yield f"records: {where}"


def ladder_json(result: Result, published: bool, where: str | None) -> str:
    """The page as every run's JSON has it, and `ladders`: knee, best and collapse of each."""
    page = json.loads(json_text(page_of(result, published=published, where=where)))
    page["ladders"] = [_as_json(ladder) for ladder in ladder_lines(result)]
    if published and result.run.command == "recsys":
        page["published"] = reference(RECSYS)
    return json.dumps(page, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _as_json(ladder: LadderLine) -> dict[str, Any]:
    def users(line: Line | None) -> int | None:
        return None if line is None else line.row.connections

    return {
        "variant": ladder.variant,
        "cell": dict(ladder.cell),
        "users": [users(step) for step in ladder.steps],
        "runs": [step.row.run for step in ladder.steps],
        "knee_users": users(ladder.knee),
        "best_users": users(ladder.best),
        "collapse_users": [users(step) for step in ladder.collapses],
        "errors": ladder.errors,
        "end": ladder.end,
        "signs": list(ladder.signs),
        "at_knee": None
        if ladder.knee is None
        else {
            "requests_per_s": ladder.rate(ladder.knee),
            "latency_ns": asdict(ladder.knee.distributions["latency"]),
            "forward_ns_per_batch": mean_forward_ns(t.forward for t in ladder.knee.trials),
        },
    }


_NOTES: Final = (
    "users: closed loop, each a connection of the raw client that asks, reads the whole answer and "
    "asks again at once; of a model user_id 1 to 1000 in turn. best: the highest requests/s; knee: "
    "the step in the first table; collapse: below 80 % of the best with more users than it; "
    "ratio: of the best, to that of the first service of the same size.",
    "batch: requests that a replica took at once, as it counted them, warm-up included: mean, p50 "
    "and max; forward: ms of the model for a batch, from features as they came to scores; ranker, "
    "ingress, replicas, HTTP: CPU of all processes of the tier, % of a core; host: of all its "
    "cores, the client included; errors: of the whole ladder in the first table.",
)


# -------------------------------------------------------------------------- what was asked


def _service(result: Result) -> str:
    """The service in words: its tiers, its device, its batching."""
    urls = result.run.suite.get("urls")
    if urls:
        named = ", ".join(f"{name} {url}" for name, url in urls.items())
        return f"services that were there already: {named}; what is inside them is not visible"
    cells = result.run.suite.get("cells") or [{}]
    cell = cells[0]
    if "ranker" not in cell:
        return f"app {result.run.suite.get('app')}"
    replicas = [r for deploy in result.deploys for r in deploy.proof.get("replicas", ())]
    facts = replicas[0] if replicas else {}
    device = str(facts.get("device", cell.get("device"))).upper()
    threads = facts.get("threads", cell.get("threads"))
    where = f"CPU, no GPU is used; {threads} thread{'s' if threads != 1 else ''} of torch a ranker"
    if device != "CPU":
        where = f"{facts.get('device_name') or device}, {cell.get('gpu_fraction'):g} GPU a ranker"
    return (
        f"on {where}; torch {facts.get('torch', 'not asked')}; GET ?user_id=N -> {_tiers(cell)}"
        f", {cell.get('rows_per_request')} candidates a request, tables "
        f"{cell.get('sparse_features')} x {cell.get('table_rows'):,} x {cell.get('width')}; "
        f"batches of up to {cell.get('max_batch_size')} requests, waiting up to "
        f"{cell.get('batch_wait_timeout_s')} s"
    )


def _tiers(cell: Any) -> str:
    each = cell.get("ingress_per_ranker")
    return f"ingress ({each} replicas a ranker) -> DLRM ranker" if each else "DLRM ranker"


# ------------------------------------------------------------------------------- published


def _published(width: int) -> Iterator[str]:
    """Both published tables, with their hardware; never as measured here."""
    told = reference(RECSYS)
    yield from wrapped(f"PUBLISHED, not measured here: {told['source']}; {told['hardware']}", width)
    rows = [
        (f"  {row['gpu_replicas']} GPU", name, *(str(row[key][of]) for of in _PUBLISHED_KEYS))
        for row in told["rows"]
        for key, name in (("oss", "open source"), ("turbo", "Turbo"))
    ]
    yield from columns(("  rankers", "variant", "req/s", "p50", "p90", "users"), rows, left=(0, 1))
    later = told["later"]
    yield ""
    about = f"PUBLISHED, not measured here: {later['source']}; {later['hardware']}"
    yield from wrapped(about, width)
    rows = [
        (f"  {row['users']}", row["variant"], *(str(row[of]) for of in _LATER_KEYS))
        for row in later["rows"]
    ]
    yield from columns(("  users", "variant", "req/s", "p50", "p90", "p99"), rows, left=(0, 1))


_PUBLISHED_KEYS: Final = ("req_s", "p50_ms", "p90_ms", "users")
_LATER_KEYS: Final = ("req_s", "p50_ms", "p90_ms", "p99_ms")
