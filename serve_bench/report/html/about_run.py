"""What the pages of all kinds of run have: what was asked, the machine, the method.

Rule: figures come from the records and from statistics.py, as in every other form of report; what
is not recorded is left out, never guessed. Rows are in executed.py, launches in proofs.py.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from serve_bench.analysis.checks import checks
from serve_bench.analysis.statistics import summarize
from serve_bench.core.document import Block, Column, Facts, Row, Section, Table
from serve_bench.core.result import JsonObject, Result, Run
from serve_bench.report.html.executed import executed
from serve_bench.report.html.pieces import remarks_once
from serve_bench.report.html.proofs import proofs, whole_proofs

Formula: TypeAlias = tuple[str, str, str]
"""Name, formula in plain text, source."""

COMMIT: Final = 12
"""Characters of a commit that tell it from all others; the records have the whole."""

GENERAL_FORMULAS: Final[tuple[Formula, ...]] = (
    (
        "mean ± std of a row",
        "mean = sum(w) / n, std = sqrt(sum((w - mean)^2) / n), w: its n windows (ddof 0); over "
        "launches the mean of their means, and the root of the mean of their variances",
        "as the published benchmark computes it; serve_bench/statistics.py",
    ),
    (
        "std over launches",
        "sqrt(sum((m - mean)^2) / (k - 1)), m: the means of k launches (ddof 1)",
        "GLOSSARY.md; serve_bench/statistics.py",
    ),
    (
        "p50, p90, p99",
        "the smallest value that 50, 90, 99 % of all values do not exceed (nearest rank), in a "
        "histogram with 1,024 slots for each power of two: at most 0.05 % off; histograms of "
        "launches are added up",
        "GLOSSARY.md; serve_bench/histogram.py",
    ),
    (
        "latency",
        "time at which the response was whole - time at which the request was due; in a closed "
        "loop it is due when it is sent",
        "GLOSSARY.md",
    ),
    (
        "requests",
        "carried in + sent = completed + failed + in flight; failed requests are no samples of "
        "throughput or latency",
        "GLOSSARY.md",
    ),
)
"""What holds for every run with windows and latencies."""


def asked(run: Run) -> Facts:
    """What was asked for: the command as it was typed, the suite, what the plan holds, when."""
    return Facts(tuple(_asked(run)))


def _asked(run: Run) -> Iterator[tuple[str, str]]:
    yield "command", command_line(run)
    name = run.suite.get("name")
    if name and name != run.command:
        yield "suite", str(name)
    app = run.suite.get("app")
    if app:
        named = app.get("target") or app.get("name") if isinstance(app, dict) else app
        yield "app", str(named)
    if run.plan:
        yield "planned", _planned(run)
    yield "begun", moment(run.started_at)
    yield "run", run.id


def moment(text: str) -> str:
    """`2026-01-02 03:04:05 UTC`; a time of another zone as it is recorded."""
    day, _, time = text.removesuffix("+00:00").partition("T")
    return f"{day} {time.partition('.')[0]} UTC" if text.endswith("+00:00") and time else text


def command_line(run: Run) -> str:
    """The command as it can be typed again; of headers it has the names alone."""
    words = run.argv[1:] if run.argv[:1] == ("serve-bench",) else run.argv
    return shlex.join(("serve-bench", *words))


def _planned(run: Run) -> str:
    """`1 variant, 6 cells, 3 rows, 1 launch of each: 18 trials`."""
    variants = len({one.variant for one in run.plan})
    cells = len({json.dumps(dict(one.cell), sort_keys=True) for one in run.plan})
    rows = len({one.row for one in run.plan})
    launches = len({one.round for one in run.plan})
    return (
        f"{_count(variants, 'variant')}, {_count(cells, 'cell')}, {_count(rows, 'row')}, "
        f"{_count(launches, 'launch', 'launches')} of each: {_count(len(run.plan), 'trial')}"
    )


def _count(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def machine(run: Run) -> Facts:
    """The host, as far as it is recorded, and the versions on it."""
    return Facts(tuple(_machine(run)))


def _machine(run: Run) -> Iterator[tuple[str, str]]:
    host = run.host
    commit, mark, changes = (run.git_commit or "").partition("+")
    short = f", commit {commit[:COMMIT]}{mark}{changes}" if commit else ""
    for name, text in (
        ("CPU", host.get("cpu")),
        ("cores", _cores(host)),
        ("memory", _memory(host)),
        ("kernel", " ".join(str(host[key]) for key in ("kernel", "machine") if host.get(key))),
        ("governor", host.get("governor")),
        ("load before the start", _load(host)),
        ("Python", host.get("python")),
        ("Ray", host.get("ray")),
        ("serve-bench", f"{run.tool_version}{short}"),
        ("host", host.get("id")),
    ):
        if text:
            yield name, str(text)


def _cores(host: JsonObject) -> str:
    usable, logical = host.get("usable_cores"), host.get("logical_cores")
    physical, quota = host.get("physical_cores"), host.get("cpu_quota_cores")
    words = [
        None if usable is None else f"{usable} usable",
        None if logical is None else f"{logical} logical",
        None if physical is None else f"{physical} physical",
        None if quota is None else f"quota {quota:g}",
    ]
    return ", ".join(word for word in words if word)


def _memory(host: JsonObject) -> str:
    whole, limit = host.get("memory_bytes"), host.get("memory_limit_bytes")
    words = [
        f"{whole / 2**30:.1f} GiB" if whole else "",
        f"limit {limit / 2**30:.1f} GiB" if limit else "",
    ]
    return ", ".join(word for word in words if word)


def _load(host: JsonObject) -> str:
    spans = [span for span in (1, 5, 15) if host.get(f"load_{span}m") is not None]
    loads = ", ".join(f"{host[f'load_{span}m']:.2f}" for span in spans)
    return f"{loads} (mean over {', '.join(map(str, spans))} min)" if spans else ""


def whole_doubts(result: Result) -> tuple[str, ...]:
    """The warnings about the whole run, one line each."""
    return tuple(
        remarks_once([one for one in checks(result) if one.key is None and one.variant is None])
    )


def method(result: Result, formulas: Sequence[Formula] = ()) -> Section:
    """How it was measured: each row as declared and as executed, the proof of each launch, the
    formulas with their sources. What the run has none of is left out."""
    blocks: list[Block] = []
    if lines := summarize(result):
        blocks.append(executed(lines, result.run.suite))
    if result.launches:
        blocks += [proofs(result.launches), *whole_proofs(result.launches)]
    if formulas:
        columns = tuple(Column(name, number=False) for name in ("name", "formula", "source"))
        blocks.append(Table("Formulas", columns, tuple(Row(one) for one in formulas)))
    return Section("method", "Method", tuple(blocks))
