"""How a run of ladders is looked at: sweep and recsys, services compared at their knees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from serve_bench.analysis.statistics import MAIN
from serve_bench.core.figures import counted
from serve_bench.core.ladder import KNEE
from serve_bench.core.result import JsonObject, Result
from serve_bench.view.climbs import (
    collapse_points,
    cpu_blocks,
    describe_running,
    findings,
    knee_point,
    load_sections,
    remarks,
    replicas_of,
    services_of,
    shown_steps,
)
from serve_bench.view.document import Prose, ReportOptions, Section
from serve_bench.view.figures import INSIDE, Value
from serve_bench.view.frame import Field, TableSpec, ViewRow, make_table
from serve_bench.view.ladders import NOT_VISIBLE, LadderLine
from serve_bench.view.lens import Lens, View
from serve_bench.view.published import RECSYS, reference
from serve_bench.view.rows import Page
from serve_bench.view.texts import cell_title

KNEES: Final = TableSpec(
    f"At saturation: the fewest users with {100 * KNEE:.0f} % of the best requests/s",
    (
        Field("name", "service"),
        Field(MAIN, "at the knee"),
        Field("users"),
        Field("latency_p50"),
        Field("latency_p90", detail=True),
        Field("latency_p99"),
        Field("errors", head="all steps", detail=True),
        Field("best"),
        Field("best_with", "best with", "users", detail=True),
        Field("ratio", head="of the best"),
    ),
    (
        "Users: closed loop, each a connection that asks again at once. ±: std over the windows "
        "(ddof 0). Ratio: of the best requests/s, to that of the first service of the same size.",
    ),
)
AT_KNEES: Final = TableSpec(
    "Batches and CPU at the same loads",
    (
        Field("name", "service"),
        Field("batch_size_mean", "batch"),
        Field("batch_size_p50", "batch p50", detail=True),
        Field("batch_size_max", "batch max", detail=True),
        Field("forward"),
        Field("cpu_ranker", head="CPU %"),
        Field("cpu_ingress", head="CPU %"),
        Field("cpu_replicas", head="CPU %"),
        Field("cpu_http", head="CPU %"),
        Field("cpu_host", head="CPU %"),
        Field("gpu"),
    ),
    (
        "Batch: requests that a replica took at once, as it counted them, warm-up included; "
        "forward: the model for a batch, from features as they came to scores.",
        "CPU: all processes of the tier, 100 % is one core; host: of all its cores, the client "
        "included.",
    ),
)
STEPS: Final = TableSpec(
    "Every step",
    (
        Field("users"),
        Field(MAIN, "throughput"),
        Field("latency_p50"),
        Field("latency_p90", detail=True),
        Field("latency_p99"),
        Field("latency_max", detail=True),
        Field("errors"),
        Field("batch_size_mean", "batch", head="requests", detail=True),
        Field("forward", detail=True),
        Field("cpu_host", head="CPU %", detail=True),
        Field("mark"),
    ),
    ("±: std over the windows (ddof 0). Errors are in no rate and no latency.",),
)
PUBLISHED: Final = TableSpec(
    "Published, not measured here",
    (
        Field("name", "service"),
        Field("users"),
        Field(MAIN, "throughput"),
        *(Field(f"latency_{share}") for share in ("p50", "p90", "p99")),
    ),
)


def build(result: Result, page: Page, rows: list[ViewRow], options: ReportOptions) -> View:
    """The ladders of a run, each at its knee."""
    services = services_of(result, rows, name_services, "user")
    if not services:
        return View(rows, findings=tuple(findings(())))
    points = [knee_point(service) for service in services]
    steps = [row for service in services for row in service.steps]
    words = Prose(
        tuple(f"{service.name}: {'; '.join(remarks(service))}." for service in services),
        listed=True,
    )
    sections = [Section("results", "Results", (make_table(KNEES, points), words), "headline")]
    inside = [point for service, point in zip(services, points, strict=True) if service.visible]
    if inside := [point for point in inside if point.entry is not None]:
        table = make_table(AT_KNEES, inside, bare=True)
        sections.append(Section("inside", "Inside", (table,), "table"))
    sections.append(Section("steps", "Steps", (make_table(STEPS, steps),), "table"))
    published = options.published and result.run.command == "recsys"
    if published:
        tables = [
            make_table(PUBLISHED, rows_of, words) for words, rows_of in published_rows().items()
        ]
        sections.append(Section("published", "Published", tuple(tables), "table"))
    return View(
        rows=steps,
        points=[*points, *(row for service in services for row in collapse_points(service))],
        lead=max(points, key=lambda point: point.value(MAIN) or 0.0),
        findings=tuple(findings(services)),
        sections=sections,
        charts=tuple(load_sections(services, {})),
        cpu=tuple(cpu_blocks(services)),
        traced=[row for service in services for row in shown_steps(service)],
        facts=tuple(("service", text) for text in describe_service(result)),
    )


def name_services(ladders: Sequence[LadderLine]) -> list[tuple[str, str]]:
    """`default, plain, CPU` and the size, what else is in the cell: services of one size are
    compared."""
    return [(_label(ladder), _size(ladder.cell)) for ladder in ladders]


def _label(ladder: LadderLine) -> str:
    cell = ladder.cell
    words = [ladder.variant, cell.get("ranker"), str(cell.get("device") or "").upper()]
    return ", ".join(str(word) for word in words if word)


def _size(cell: JsonObject) -> str:
    if "num_replicas" not in cell:
        return f"replicas {NOT_VISIBLE}"
    if "ranker" in cell:
        return counted(int(cell["num_replicas"]), "ranker replica")
    return cell_title(cell)


def describe_service(result: Result) -> Iterator[str]:
    """The service in words: its tiers, its device, its batching. Of an app without a model its name
    says it all."""
    cell = (result.run.suite.get("cells") or [{}])[0]
    running = describe_running(result)
    if running or "ranker" not in cell:
        yield from [running] if running else []
        return
    facts = next(iter(replicas_of(result)), {})
    device = str(facts.get("device", cell.get("device"))).upper()
    threads = facts.get("threads", cell.get("threads"))
    where = f"CPU, no GPU is used; {threads} thread{'s' if threads != 1 else ''} of torch a ranker"
    if device != "CPU":
        where = f"{facts.get('device_name') or device}, {cell.get('gpu_fraction'):g} GPU a ranker"
    ingress = cell.get("ingress_per_ranker")
    tiers = f"ingress ({ingress} replicas a ranker) -> DLRM ranker" if ingress else "DLRM ranker"
    yield (
        f"on {where}; torch {facts.get('torch', 'not asked')}; GET ?user_id=N -> {tiers}, "
        f"{cell.get('rows_per_request')} candidates per request, tables "
        f"{cell.get('sparse_features')} x {cell.get('table_rows') or 0:,} x {cell.get('width')}; "
        f"batches of up to {cell.get('max_batch_size')} requests, waiting up to "
        f"{cell.get('batch_wait_timeout_s')} s"
    )


def published_rows() -> dict[str, list[ViewRow]]:
    """The published services of recsys, by the words on where they come from."""
    first = reference(RECSYS)
    rows = [
        {"variant": f"{row['gpu_replicas']} GPU, {name}", **row[key]}
        for row in first["rows"]
        for key, name in (("oss", "open source"), ("turbo", "Turbo"))
    ]
    return {
        f"{PUBLISHED.caption}: {about['source']}; {about['hardware']}": [
            _published_row(row) for row in table
        ]
        for about, table in ((first, rows), (first["later"], first["later"]["rows"]))
    }


def _published_row(row: Mapping[str, Any]) -> ViewRow:
    values = {MAIN: Value(row["req_s"])}
    for share in ("p50", "p90", "p99"):
        if f"{share}_ms" in row:
            values[f"latency_{share}"] = Value(1e6 * row[f"{share}_ms"])
    return ViewRow({"users": row["users"]}, values, row["variant"])


LENS: Final = Lens(build, INSIDE, noun="step", silent=("ratio:",))
