"""The report of `serve-bench recsys`: the table at saturation, what was seen inside, the ladders.

Rule: the device is named in every row; what cannot be known of a service that was already there
reads "not visible". Figures come from ladder_figures.py and statistics.py, doubts from checks.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from serve_bench.counts import BATCH_SIZE, mean_forward_ns
from serve_bench.ladder import KNEE
from serve_bench.ladder_figures import LadderLine, ladder_lines
from serve_bench.report.columns import columns, wrapped
from serve_bench.report.inside import mean_by_role
from serve_bench.report.json import json_text
from serve_bench.report.page import Entry, Page, page_of
from serve_bench.report.published import RECSYS, reference
from serve_bench.report.texts import latency, mean_and_std, number, remark
from serve_bench.result import Result, Trial, cell_slug
from serve_bench.statistics import MAIN, Line, merged
from serve_bench.usage import RoleUse

NOT_VISIBLE: Final = "not visible"
_HTTP: Final = ("haproxy", "proxy", "haproxy_manager")


def recsys_text(result: Result, published: bool, where: str | None, width: int = 80) -> str:
    """The run as text that ends with a newline."""
    page, ladders = page_of(result), ladder_lines(result)
    out = [page.title, *wrapped(_service(result), width), ""]
    for part in page.variants:
        if part.engaged or part.env:
            flags = " ".join(part.env) or "no flags"
            out += wrapped(f"variant {part.name}: {flags}", width)
            out += wrapped(part.engaged, width, indent=2)
        out += [f"! {remark(one)}" for one in part.warnings]
        out += [line for one in part.failures for line in wrapped(f"failed: {one.message}", width)]
    if any(ladder.knee is not None for ladder in ladders):
        out += ["", f"AT SATURATION: the fewest users with {100 * KNEE:.0f} % of the best req/s"]
        out += _grouped(ladders, _SATURATED, _saturated, width)
        out += ["", "INSIDE, at the same loads"]
        out += _grouped(ladders, _INSIDE, _inside, width)
        out += ["", "LIMITED BY, at the same loads", *_limits(ladders, page, width)]
    for ladder in ladders:
        out += ["", *_ladder(ladder, page, width)]
    out += ["", *_published(width)] if published else []
    out.append("")
    for one in page.failures:
        out += wrapped(f"failed: {one.what}: {one.message}", width)
    for warning in page.warnings:
        out += wrapped(f"! {remark(warning)}", width)
    for note in (*_NOTES, *page.notes, f"host: {page.host}"):
        out += wrapped(note, width)
    if where is not None:
        out.append(f"records: {where}")
    return "\n".join(out) + "\n"


def recsys_json(result: Result, published: bool, where: str | None) -> str:
    """The page as every run's JSON has it, and `ladders`: knee, best and collapse of each."""
    page = json.loads(json_text(page_of(result, published=published, where=where)))
    page["ladders"] = [_as_json(ladder) for ladder in ladder_lines(result)]
    if published:
        page["published"] = reference(RECSYS)
    return json.dumps(page, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _as_json(ladder: LadderLine) -> dict[str, Any]:
    def users(line: Line | None) -> int | None:
        return None if line is None else line.row.connections

    return {
        "variant": ladder.variant,
        "cell": dict(ladder.cell),
        "users": [users(step) for step in ladder.steps],
        "knee_users": users(ladder.knee),
        "best_users": users(ladder.best),
        "collapse_users": [users(step) for step in ladder.collapses],
        "errors": ladder.errors,
        "end": ladder.end,
        "at_knee": None
        if ladder.knee is None
        else {
            "requests_per_s": ladder.knee.spreads[MAIN].mean,
            "latency_ns": asdict(ladder.knee.distributions["latency"]),
            "forward_ns_per_batch": mean_forward_ns(t.forward for t in ladder.knee.trials),
        },
    }


_NOTES: Final = (
    "users: closed loop, each a connection of the raw client that asks, reads the whole answer and "
    "asks again at once; user_id 1 to 1000 in turn. best: the highest requests/s of the ladder; "
    "knee: the step in the first table; collapse: below 80 % of the best with more users than it.",
    "batch: requests that a ranker scored at once, as it counted them, warm-up included: mean, p50 "
    "and max; forward: ms of the model for a batch, from features as they came to scores; ranker, "
    "ingress, HTTP: CPU of all processes of the tier, % of a core; host: of all its cores, the "
    "client included; errors: of the whole ladder in the first table.",
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
    replicas = [r for deploy in result.deploys for r in deploy.proof.get("replicas", ())]
    facts = replicas[0] if replicas else {}
    device = str(facts.get("device", cell.get("device"))).upper()
    threads = facts.get("threads", cell.get("threads"))
    where = f"CPU, no GPU is used; {threads} thread{'s' if threads != 1 else ''} of torch a ranker"
    if device != "CPU":
        where = f"{facts.get('device_name') or device}, {cell.get('gpu_fraction'):g} GPU a ranker"
    return (
        f"on {where}; torch {facts.get('torch', 'not asked')}; GET ?user_id=N -> ingress -> DLRM "
        f"ranker, {cell.get('rows_per_request')} candidates a request, tables "
        f"{cell.get('sparse_features')} x {cell.get('table_rows'):,} x {cell.get('width')}; "
        f"batches of up to {cell.get('max_batch_size')} requests, waiting up to "
        f"{cell.get('batch_wait_timeout_s')} s; {cell.get('ingress_per_ranker')} ingress replicas "
        "a ranker"
    )


def _name(ladder: LadderLine) -> str:
    """`default, plain, CPU`; a service that was there already has its name alone."""
    words = [ladder.variant, ladder.cell.get("ranker")]
    device = ladder.cell.get("device")
    return ", ".join(str(word) for word in words if word) + (
        f", {str(device).upper()}" if device else ""
    )


def _size(ladder: LadderLine) -> str:
    """The heading that ladders of one size stand under."""
    if "num_replicas" not in ladder.cell:
        return f"replicas {NOT_VISIBLE}"
    count = int(ladder.cell["num_replicas"])
    return f"{count} ranker replica{'s' if count != 1 else ''}"


def _grouped(
    ladders: Sequence[LadderLine], names: Sequence[str], row: Any, width: int
) -> Iterator[str]:
    """A table with a heading for each number of rankers."""
    sizes = dict.fromkeys(_size(ladder) for ladder in ladders)
    rows: list[Sequence[str]] = []
    for size in sizes:
        own = [ladder for ladder in ladders if _size(ladder) == size]
        rows.append((f"{size}:",))
        for one in own:
            texts = row(one, own[0])
            name = f"  {_name(one)}"
            rows.append((name, *texts) if texts else (f"{name}: {NOT_VISIBLE}",))
    yield from columns(names, rows, width=width)


# ---------------------------------------------------------------------------- at saturation

_SATURATED: Final = ("", "req/s", "p50", "p90", "p99", "users", "errors", "best", "ratio")


def _saturated(ladder: LadderLine, first: LadderLine) -> Sequence[str]:
    """Figures of the knee in ms; errors are of the whole ladder; ratio is of the best req/s."""
    if ladder.knee is None or ladder.best is None:
        return ("nothing served", *["-"] * 4, str(ladder.errors), "-", "-")
    spread = ladder.best.spreads[MAIN]
    base = None if first.best is None else first.best.spreads[MAIN].mean
    return (
        mean_and_std(ladder.knee.spreads[MAIN]),
        *(_latency(ladder.knee, name) for name in ("p50", "p90", "p99")),
        str(ladder.knee.row.connections),
        str(ladder.errors),
        number(spread.mean),
        "1" if ladder is first else f"{spread.mean / base:.2f}" if base else "-",
    )


def _latency(line: Line, name: str) -> str:
    found = line.distributions.get("latency")
    return "-" if found is None else latency(float(getattr(found, name)) / 1e6)


# ----------------------------------------------------------------------------------- inside

_INSIDE: Final = (
    *("", "batch", "p50", "max", "forward"),
    *("ranker", "ingress", "HTTP", "host", "GPU"),
)


def _inside(ladder: LadderLine, _: LadderLine) -> Sequence[str]:
    """Batches and CPU at the knee; nothing where no one can look inside."""
    line = ladder.knee
    if line is None:
        return ["-"] * (len(_INSIDE) - 1)
    if "num_replicas" not in ladder.cell:
        return ()
    uses = mean_by_role(line.trials)
    return (
        *_batches(line),
        _forward(line.trials),
        _cpu(uses, "replica Ranker"),
        _cpu(uses, "replica Ingress"),
        _cpu(uses, *_HTTP),
        _host(line.trials),
        _gpu(line.trials, str(ladder.cell.get("device"))),
    )


def _limits(ladders: Sequence[LadderLine], page: Page, width: int) -> Iterator[str]:
    """What limited each service where it was saturated, with the figures for it."""
    for size in dict.fromkeys(_size(ladder) for ladder in ladders):
        yield f"{size}:"
        for ladder in (one for one in ladders if _size(one) == size):
            knee = None if ladder.knee is None else ladder.knee.row.connections
            entry = None if knee is None else _entries(ladder, page)[knee]
            limit = None if entry is None else entry.limited
            if "num_replicas" not in ladder.cell:
                said = NOT_VISIBLE
            else:
                said = "CPU was not sampled" if limit is None else limit.text
            yield from wrapped(f"{_name(ladder)}: {said}", width, indent=2)


def _batches(line: Line) -> Sequence[str]:
    sizes = merged(line.trials, BATCH_SIZE)
    if not sizes.count:
        return ["-"] * 3
    return (f"{sizes.mean:.1f}", f"{sizes.percentile(0.5):.0f}", f"{sizes.max:.0f}")


def _forward(trials: Sequence[Trial]) -> str:
    found = mean_forward_ns(trial.forward for trial in trials)
    return "-" if found is None else number(found / 1e6, 3)


def _cpu(uses: dict[str, RoleUse], *roles: str) -> str:
    found = [uses[role].cpu_percent for role in roles if role in uses]
    return f"{sum(found):.0f}" if found else "-"


def _host(trials: Sequence[Trial]) -> str:
    hosts = [trial.usage["host"] for trial in trials if trial.usage.get("host")]
    shares = [host["cpu_percent"] for host in hosts if host.get("cpu_percent") is not None]
    if not shares:
        return "-"
    return f"{sum(shares) / len(shares):.0f}/{100 * int(hosts[0].get('cores', 1))}"


def _gpu(trials: Sequence[Trial], device: str) -> str:
    """Use of all GPUs together; a ranker on a CPU uses none."""
    if device != "cuda":
        return "none"
    gpus = [gpu for trial in trials for gpu in trial.usage.get("gpus", ()) if isinstance(gpu, dict)]
    shares = [gpu["use_percent"] for gpu in gpus if gpu.get("use_percent") is not None]
    return f"{sum(shares) / len(trials):.0f}" if shares else NOT_VISIBLE


# -------------------------------------------------------------------------------- the ladder

_STEPS: Final = (
    *("users", "req/s", "p50", "p90", "p99", "errors", "batch", "forward", "host", ""),
)


def _ladder(ladder: LadderLine, page: Page, width: int) -> Iterator[str]:
    """The whole ladder, doubts under the step that they are about."""
    head = f"LADDER {_name(ladder)}, {_size(ladder)}; {ladder.end}"
    if not ladder.collapses:
        head += "; no collapse"
    yield from wrapped(head, width)
    entries = _entries(ladder, page)
    steps = [_step(ladder, line) for line in ladder.steps]
    texts = list(columns(_STEPS, steps, left=(9,), width=width - 2))
    yield "  " + texts[0]
    for line, text in zip(ladder.steps, texts[1:], strict=True):
        yield "  " + text
        for one in entries[line.row.connections].remarks:
            yield from wrapped(f"! {one}", width, indent=4)


def _entries(ladder: LadderLine, page: Page) -> dict[int, Entry]:
    slug = cell_slug(ladder.cell)
    return {
        entry.line.row.connections: entry
        for entry in page.entries
        if entry.line.variant == ladder.variant and cell_slug(entry.line.cell) == slug
    }


def _step(ladder: LadderLine, line: Line) -> Sequence[str]:
    users = str(line.row.connections)
    if MAIN not in line.spreads:
        return (users, line.status, *["-"] * 7, "")
    return (
        users,
        mean_and_std(line.spreads[MAIN]),
        *(_latency(line, name) for name in ("p50", "p90", "p99")),
        str(line.errors),
        _batches(line)[0],
        _forward(line.trials),
        _host(line.trials),
        ladder.mark(line),
    )


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
