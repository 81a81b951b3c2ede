"""A run of rpc in the published printed form, line for line as PyTorch's benchmark prints it.

Rule: names, order and digits are the source's (serve_bench/reference/torch_rpc.json): latencies in
seconds with three decimals, throughputs cut to whole numbers. What it has no place for (ms, other
percentiles, doubts) is in the table and in JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from serve_bench.benchmarks.rpc.request import BACKENDS, PUBLISHED_ARGUMENTS
from serve_bench.benchmarks.rpc.summary import NAMES, PERCENTILES, Figures, RpcPoint, rpc_points
from serve_bench.core.result import JsonObject, Result

REPORT_FILE: Final = "benchmark_report.json"
"""In the run's folder, always."""

BANNER: Final = "PyTorch distributed rpc benchmark suite"


def x_axis_of(result: Result) -> str:
    """The argument that is swept; world_size where none was a list."""
    return str(result.run.suite.get("x_axis") or "world_size")


def published_arguments(result: Result) -> dict[str, Any]:
    """The arguments of the source with their values, in its order and of its types. Left out: the
    x axis, which each benchmark has for itself, and what was not given."""
    suite = result.run.suite
    cells: Sequence[JsonObject] = suite.get("worlds") or [one.cell for one in result.run.plan]
    known: dict[str, Any] = {**suite, **(cells[0] if cells else {})}
    given = {name: known.get(name) for name in PUBLISHED_ARGUMENTS if name != x_axis_of(result)}
    if "output_file_path" in given and given["output_file_path"] is None:
        given["output_file_path"] = REPORT_FILE
    if given.get("master_port") is not None:
        given["master_port"] = str(given["master_port"])  # a text there
    return {name: value for name, value in given.items() if value is not None}


def printed_form(result: Result) -> list[str]:
    """The lines, once for each backend in the order of the plan. What was not measured has none."""
    arguments, x_axis = published_arguments(result), x_axis_of(result)
    points = [one for one in rpc_points(result) if one.line.status != "profiled"]
    backends = list(dict.fromkeys(one.backend for one in points))
    named = backends != [BACKENDS[0]]
    out: list[str] = []
    for backend in backends:
        own = [one for one in points if one.backend == backend and one.figures]
        out += form_lines(arguments, x_axis, own, backend if named else None) if own else ()
    return out


def form_lines(
    arguments: Mapping[str, Any], x_axis: str, points: Sequence[RpcPoint], backend: str | None
) -> Iterator[str]:
    """The lines of one backend, which is named where it is given; all points were measured."""
    yield from ("-" * len(BANNER), BANNER, "-" * len(BANNER))
    if backend is not None:
        yield f"backend : {backend}"
    yield from (f"{name} : {value}" for name, value in arguments.items())
    yield f"x_axis_name : {x_axis}"
    for point in points:
        yield from ("---------", "Benchmark", f"{x_axis} : {point.x}")
        for name in NAMES:
            yield from (_metric(name, point.figures[name]), "")


def _metric(name: str, figures: Figures) -> str:
    seconds = "latency" in name
    shown = {
        share: round(figures.percentiles[share], 3) if seconds else int(figures.percentiles[share])
        for share in PERCENTILES
    }
    return f"{name.removesuffix(' (seconds)')} -- {shown}"


def classic_rpc(result: Result) -> str:
    """The printed form as text; worlds that were not measured are named behind it."""
    x_axis = x_axis_of(result)
    missing = [
        f"! not measured: {point.backend}, {x_axis} {point.x}"
        for point in rpc_points(result)
        if not point.figures
    ]
    return "\n".join(printed_form(result) + missing or ["nothing was measured"]) + "\n"
