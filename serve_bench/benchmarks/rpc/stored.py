"""A stored report of rpc, to be drawn: ours, or one that PyTorch's own launcher wrote.

Rule: all that is shown is checked here; what is no such report is one line that names the key.
Units stay those of the report: seconds, requests/s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from serve_bench.benchmarks.parts.published import rpc_source
from serve_bench.benchmarks.rpc.charts import example_curve, metric_charts
from serve_bench.benchmarks.rpc.forms import OURS
from serve_bench.benchmarks.rpc.summary import NAMES, PERCENTILES, Curve
from serve_bench.core.document import Document, Facts, Section
from serve_bench.core.errors import BadInput
from serve_bench.core.figures import host_line

THEIRS: Final = "as reported"
"""Where a report does not say which backend it is of."""

LARGEST: Final = 1e15
"""Of a figure: what is larger is no latency or rate, and cannot be drawn."""

SHOWN: Final = ("batch", "world_size", "state_size", "nlayers", "out_features")
"""Arguments that are shown beside the charts."""


@dataclass(frozen=True)
class StoredReport:
    """What a report holds. `ours` is its part under our key, empty in one of PyTorch's."""

    x_axis: str
    curves: tuple[Curve, ...]
    arguments: Mapping[str, Any]
    ours: Mapping[str, Any]


def report_document(report: object, published: bool, name: str = "plot") -> Document:
    """What a report says: the four metrics over the x axis, with the source's example if wanted and
    alike. Raises BadInput where it is no such report, beginning with its `name` (a file, say)."""
    try:
        stored = read_report(report)
        facts = tuple(_facts(stored, published))
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None
    example = _example(stored) if published else None
    title = "serve-bench rpc: one agent and its observers" if stored.ours else "PyTorch RPC"
    charts = tuple(metric_charts(stored.curves, stored.x_axis, example))
    return Document(
        title=f"{title}, over {stored.x_axis}",
        command="rpc",
        run=Facts(facts),
        machine=Facts(()),
        findings=(),
        doubts=(),
        sections=(Section("results", f"Results over {stored.x_axis}", charts, "headline"),),
        picture=lambda: charts,
    )


def _example(stored: StoredReport) -> Curve | None:
    return example_curve(stored.x_axis, frozenset({stored.arguments.get("batch") is True}))


def _facts(stored: StoredReport, published: bool) -> Iterator[tuple[str, str]]:
    """What was asked, who measured it, and where. Raises BadInput where the report has it in
    another form than ours."""
    given = [f"{name} {stored.arguments[name]}" for name in SHOWN if name in stored.arguments]
    yield "arguments", ", ".join(given)
    if published and _example(stored) is not None:
        yield "published", rpc_source()
    if not stored.ours:
        yield "report", "without run and host; PyTorch's launcher rounds to whole ms and requests/s"
        return
    try:
        yield from _ours_in_words(stored)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise BadInput(
            f"no report of rpc: run, host, asked or client in {OURS} is not as we write it"
        ) from None


def _ours_in_words(stored: StoredReport) -> Iterator[tuple[str, str]]:
    ours = stored.ours
    run, asked = ours.get("run", {}), ours.get("asked", {})
    if asked.get("policy_ms") is not None:
        yield "policy", f"none, it takes {asked['policy_ms']} ms"
    if asked.get("steps") is not None:
        yield "episode", f"{asked['steps']} calls of each observer"
    for curve in stored.curves:
        texts = [
            ", ".join(f"{name} {value}" for name, value in client["versions"].items() if value)
            for entry in ours["backends"][curve.name]
            for client in entry.get("client", ())
            if client.get("versions")
        ]
        yield f"backend {curve.name}", " / ".join(dict.fromkeys(texts))
    yield "run", f"{run.get('id')}, {run.get('started_at')}"
    yield "host", host_line(ours.get("host", {}))


# --------------------------------------------------------------------------------- reading it


def read_report(report: object) -> StoredReport:
    """Raises BadInput when it is no report of rpc, or holds no figure."""
    top = _object(report, "it")
    results = _list(top, "benchmark_results", "")
    x_axis = top.get("x_axis_name", "world_size")  # PyTorch names none if no argument was a list
    if not isinstance(x_axis, str):
        raise _no_report("x_axis_name is no text")
    ours = _object(top[OURS], OURS) if OURS in top else {}
    if ours:
        curves = tuple(_ours(ours))
    else:
        points = dict(_theirs(results, x_axis, top))
        curves = (Curve(THEIRS, points),) if points else ()
    if not curves:
        raise BadInput("the report holds no figure: benchmark_results is empty")
    arguments = {
        name: value
        for name, value in top.items()
        if name not in ("benchmark_results", "x_axis_name", OURS) and not isinstance(value, dict)
    }
    return StoredReport(x_axis, curves, arguments, ours)


def _theirs(
    results: Sequence[Any], x_axis: str, top: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Mapping[int, float]]]]:
    seen = set()
    for at, one in enumerate(results):
        where = f"benchmark_results[{at}]"
        entry = _object(one, where)
        if x_axis not in entry and "x_axis_name" in top:
            raise _no_report(f"{where}.{x_axis} is missing")
        x = str(entry.get(x_axis, top.get(x_axis, "-")))
        if x in seen:
            raise _no_report(f"{where}.{x_axis}: {x} stands there twice")
        seen.add(x)
        yield x, _metrics(entry, where)


def _ours(ours: Mapping[str, Any]) -> Iterator[Curve]:
    """The backends that measured anything; what was not measured has no figures."""
    backends = _object(ours.get("backends"), f"{OURS}.backends")
    for name in backends:
        points: dict[str, Mapping[str, Mapping[int, float]]] = {}
        for at, one in enumerate(_list(backends, name, f"{OURS}.backends.")):
            where = f"{OURS}.backends.{name}[{at}]"
            entry = _object(one, where)
            if "x" not in entry:
                raise _no_report(f"{where}.x is missing")
            metrics = _object(entry.get("metrics"), f"{where}.metrics")
            if str(entry["x"]) in points:
                raise _no_report(f"{where}.x: {entry['x']} stands there twice")
            if metrics:
                points[str(entry["x"])] = _metrics(metrics, f"{where}.metrics")
        if points:
            yield Curve(str(name), points)


def _metrics(entry: Mapping[str, Any], where: str) -> dict[str, dict[int, float]]:
    """The percentiles of the four metrics."""
    out = {}
    for name in NAMES:
        place = f"{where}.{name}"
        shares = _object(entry.get(name), place)
        out[name] = {one: _number(shares.get(f"p{one}"), f"{place}.p{one}") for one in PERCENTILES}
    return out


def _number(value: object, place: str) -> float:
    if value is None:
        raise _no_report(f"{place} is missing")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _no_report(f"{place} is no number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not 0 <= number <= LARGEST:
        raise _no_report(f"{place} is {number:g}; it takes a number from 0 to {LARGEST:g}")
    return number


def _object(value: object, place: str) -> Mapping[str, Any]:
    if value is None:
        raise _no_report(f"{place} is missing")
    if not isinstance(value, Mapping):
        raise _no_report(f"{place} is no JSON object")
    return value


def _list(value: Mapping[str, Any], key: str, before: str) -> Sequence[Any]:
    if key not in value:
        raise _no_report(f"{before}{key} is missing")
    items = value[key]
    if not isinstance(items, list | tuple):
        raise _no_report(f"{before}{key} is no list")
    return items


def _no_report(why: str) -> BadInput:
    return BadInput(f"no report of rpc: {why}")
