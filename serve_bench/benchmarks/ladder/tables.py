"""The tables of ladders: each at its knee, what was seen inside, and every step with its doubts.

Rule: a row says its variant and, of a model, its device; what cannot be known of a service that was
already there reads "not visible". Figures come from benchmarks/ladder/summary.py and
analysis/statistics.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from serve_bench.analysis.statistics import MAIN, Line, merged
from serve_bench.benchmarks.ladder.summary import LadderLine
from serve_bench.benchmarks.parts.inside import mean_by_role
from serve_bench.benchmarks.parts.page import Entry, Page
from serve_bench.benchmarks.parts.texts import cell_title, latency, mean_and_std, number
from serve_bench.core.result import Row, Trial, cell_slug
from serve_bench.core.usage import BATCH_SIZE, RoleUse, mean_forward_ns
from serve_bench.report.columns import fitted, wrapped

NOT_VISIBLE: Final = "not visible"
_HTTP: Final = ("haproxy", "proxy", "haproxy_manager")


def name_of(ladder: LadderLine) -> str:
    """`default, plain, CPU`; of a variant without a model, and of a service that was there already,
    the name alone."""
    words = [ladder.variant, ladder.cell.get("ranker")]
    device = ladder.cell.get("device")
    return ", ".join(str(word) for word in words if word) + (
        f", {str(device).upper()}" if device else ""
    )


def size_of(ladder: LadderLine) -> str:
    """The heading that ladders of one size stand under: what of the cell is not in the name."""
    cell = ladder.cell
    if "num_replicas" not in cell:
        return f"replicas {NOT_VISIBLE}"
    if "ranker" in cell:
        count = int(cell["num_replicas"])
        return f"{count} ranker replica{'s' if count != 1 else ''}"
    return cell_title(cell)


def grouped(
    ladders: Sequence[LadderLine], names: Sequence[str], row: Any, width: int
) -> Iterator[str]:
    """A table with a heading for each number of rankers."""
    sizes = dict.fromkeys(size_of(ladder) for ladder in ladders)
    rows: list[Sequence[str]] = []
    for size in sizes:
        own = [ladder for ladder in ladders if size_of(ladder) == size]
        rows.append((f"{size}:",))
        for one in own:
            texts = row(one, own[0])
            name = f"  {name_of(one)}"
            rows.append((name, *texts) if texts else (f"{name}: {NOT_VISIBLE}",))
    table = fitted(names, rows, width=width, spare=SPARE)
    yield from (*table.lines, *table.said(width))


#: Columns of the two tables at saturation that may go when there is no room, the first first.
SPARE: Final = ("p90", "max", "best", "GPU", "p50", "HTTP")


# ---------------------------------------------------------------------------- at saturation

SATURATED: Final = ("", "req/s", "p50", "p90", "p99", "users", "errors", "best", "ratio")


def saturated(ladder: LadderLine, first: LadderLine) -> Sequence[str]:
    """Figures of the knee in ms; errors are of the whole ladder; ratio is of the best req/s."""
    if ladder.knee is None or ladder.best is None:
        return (ladder.without, *["-"] * 4, str(ladder.errors), "-", "-")
    most = ladder.rate(ladder.best)
    base = None if first.best is None else first.rate(first.best)
    return (
        mean_and_std(ladder.spread(ladder.knee)),
        *(_latency(ladder.knee, name) for name in ("p50", "p90", "p99")),
        str(ladder.knee.row.connections),
        str(ladder.errors),
        number(most),
        "1" if ladder is first else f"{most / base:.2f}" if base else "-",
    )


def _latency(line: Line, name: str) -> str:
    found = line.distributions.get("latency")
    return "-" if found is None else latency(getattr(found, name) / 1e6)


# ----------------------------------------------------------------------------------- inside

_MODEL: Final = (
    *("batch", "p50", "max", "forward"),
    *("ranker", "ingress", "HTTP", "host", "GPU"),
)
_PLAIN: Final = ("batch", "p50", "max", "replicas", "HTTP", "host")


def inside_names(ladders: Sequence[LadderLine]) -> Sequence[str]:
    """The columns of what was seen inside: those of a model where there is one."""
    return ("", *(_MODEL if any("ranker" in one.cell for one in ladders) else _PLAIN))


def inside(ladder: LadderLine, _: LadderLine) -> Sequence[str]:
    """Batches and CPU at the knee; nothing where no one can look inside."""
    line = ladder.knee
    columns_here = inside_names([ladder])[1:]
    if "num_replicas" not in ladder.cell:
        return ()
    if line is None:
        return ["-"] * len(columns_here)
    uses = mean_by_role(line.trials)
    tiers = {
        "ranker": _cpu(uses, "replica Ranker", "replica"),
        "ingress": _cpu(uses, "replica Ingress"),
        "replicas": _cpu(uses, *(role for role in uses if role.startswith("replica"))),
        "HTTP": _cpu(uses, *_HTTP),
        "forward": _forward(line.trials),
        "host": _host(line.trials),
        "GPU": _gpu(line.trials, str(ladder.cell.get("device"))),
        **dict(zip(("batch", "p50", "max"), _batches(line), strict=True)),
    }
    return [tiers[name] for name in columns_here]


def limits(ladders: Sequence[LadderLine], page: Page, width: int) -> Iterator[str]:
    """What limited each service where it was saturated, with the figures for it."""
    for size in dict.fromkeys(size_of(ladder) for ladder in ladders):
        yield from wrapped(f"{size}:", width)
        for ladder in (one for one in ladders if size_of(one) == size):
            entry = None if ladder.knee is None else entries_of(ladder, page)[ladder.knee.row]
            limit = None if entry is None else entry.limited
            if "num_replicas" not in ladder.cell:
                said = NOT_VISIBLE
            else:
                said = "CPU was not sampled" if limit is None else limit.text
            yield from wrapped(f"{name_of(ladder)}: {said}", width, indent=2)


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
#: Those that may go when there is no room, the first first.
SPARE_OF_STEPS: Final = ("p90", "forward", "host", "p50", "batch")


def ladder_steps(ladder: LadderLine, page: Page, width: int) -> Iterator[str]:
    """The whole ladder, doubts under the step that they are about."""
    head = f"LADDER {name_of(ladder)}, {size_of(ladder)}; {ladder.end}"
    if not ladder.collapses:
        head += "; no collapse"
    if ladder.knee is ladder.steps[0] and ladder.knee.row.connections > 1:
        head += "; the first step is the knee already: fewer users may do (--users)"
    yield from wrapped(head, width)
    entries = entries_of(ladder, page)
    steps = [step_texts(ladder, line) for line in ladder.steps]
    table = fitted(_STEPS, steps, (9,), width - 2, SPARE_OF_STEPS)
    names, *rows = ([f"  {text}" for text in block] for block in table.blocks)
    yield from (line for sign in ladder.signs for line in wrapped(f"sign: {sign}", width, 2))
    yield from names
    for line, texts in zip(ladder.steps, rows, strict=True):
        yield from texts
        for one in entries[line.row].remarks:
            yield from wrapped(f"! {one}", width, indent=4)
    yield from table.said(width, indent=2)


def entries_of(ladder: LadderLine, page: Page) -> dict[Row, Entry]:
    """The entries of a page that are about a ladder, by their row."""
    slug = cell_slug(ladder.cell)
    return {
        entry.line.row: entry
        for entry in page.entries
        if entry.line.variant == ladder.variant
        and cell_slug(entry.line.cell) == slug
        and entry.line.status != "profiled"
    }


def step_texts(ladder: LadderLine, line: Line) -> Sequence[str]:
    """A step: its figures and what it is to its ladder."""
    users = str(line.row.connections) + (f" (run {line.row.run})" if line.row.run > 1 else "")
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


# ------------------------------------------------------------------------------ other forms


def step_names() -> list[str]:
    """The columns of a ladder's steps, the last with its mark."""
    return [*_STEPS[:-1], "mark"]


def ladder_fields(ladders: Sequence[LadderLine], entry: Entry) -> dict[str, Any]:
    """The columns that CSV has of a step of a ladder: which run of it, its mark, the ladder's end
    and signs."""
    line = entry.line
    found = [one for one in ladders if any(step.keys == line.keys for step in one.steps)]
    if not found or line.status == "profiled":
        return {"step_run": None, "mark": None, "ladder_end": None, "ladder_signs": None}
    ladder = found[0]
    step = next(step for step in ladder.steps if step.keys == line.keys)
    return {
        "step_run": line.row.run,
        "mark": ladder.mark(step),
        "ladder_end": ladder.end,
        "ladder_signs": "; ".join(ladder.signs),
    }
