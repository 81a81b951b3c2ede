"""A report of rpc read back, to be drawn: ours, or one that PyTorch's own launcher wrote.

Rule: all that is drawn is checked here; what is no such report is one line that names the key.
Units stay those of the report: seconds, requests/s.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from serve_bench.benchmarks.rpc.json_form import OURS
from serve_bench.benchmarks.rpc.summary import NAMES, PERCENTILES
from serve_bench.core.errors import BadInput

THEIRS: Final = "as reported"
"""Where a report does not say which backend it is of."""

Figure = Mapping[int, float]
"""A value for each of PERCENTILES."""

LARGEST: Final = 1e15
"""Of a figure: what is larger is no latency or rate, and cannot be drawn."""


@dataclass(frozen=True)
class Curve:
    """One backend: for each point of the x axis, as text, the four metrics by name."""

    name: str
    points: Mapping[str, Mapping[str, Figure]]


@dataclass(frozen=True)
class Drawn:
    """What is drawn of a report. `ours` is its part under our key, empty in one of PyTorch's."""

    x_axis: str
    curves: tuple[Curve, ...]
    arguments: Mapping[str, Any]
    ours: Mapping[str, Any]

    @property
    def xs(self) -> tuple[str, ...]:
        """The points of the x axis, in the order of the report."""
        return tuple(dict.fromkeys(x for curve in self.curves for x in curve.points))


def read_report(report: object) -> Drawn:
    """Raises BadInput when it is no report of rpc, or holds no figure."""
    top = _object(report, "it")
    found = _list(top, "benchmark_results", "")
    x_axis = _x_axis(top)
    ours = _object(top[OURS], OURS) if OURS in top else {}
    if ours:
        curves = tuple(_ours(ours))
    else:
        points = dict(_theirs(found, x_axis, top))
        curves = (Curve(THEIRS, points),) if points else ()
    if not curves:
        raise BadInput("the report holds no figure: benchmark_results is empty")
    arguments = {
        name: value
        for name, value in top.items()
        if name not in ("benchmark_results", "x_axis_name", OURS) and not isinstance(value, dict)
    }
    return Drawn(x_axis, curves, arguments, ours)


def _x_axis(top: Mapping[str, Any]) -> str:
    name = top.get("x_axis_name", "world_size")  # PyTorch names none where no argument was a list
    if not isinstance(name, str):
        raise _no_report("x_axis_name is no text")
    return name


def _theirs(
    found: Sequence[Any], x_axis: str, top: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Figure]]]:
    seen = set()
    for at, one in enumerate(found):
        where = f"benchmark_results[{at}]"
        entry = _object(one, where)
        if x_axis not in entry and "x_axis_name" in top:
            raise _no_report(f"{where}.{x_axis} is missing")
        x = str(entry.get(x_axis, top.get(x_axis, "-")))
        if x in seen:
            raise _no_report(f"{where}.{x_axis}: {x} stands there twice")
        seen.add(x)
        yield x, _figures(entry, where)


def _ours(ours: Mapping[str, Any]) -> Iterator[Curve]:
    """The backends that measured anything; what was not measured has no figures."""
    backends = _object(ours.get("backends"), f"{OURS}.backends")
    for name, entries in backends.items():
        place, points = f"{OURS}.backends.{name}", {}
        for at in range(len(_list(backends, name, f"{OURS}.backends."))):
            where = f"{place}[{at}]"
            entry = _object(entries[at], where)
            if "x" not in entry:
                raise _no_report(f"{where}.x is missing")
            metrics = _object(entry.get("metrics"), f"{where}.metrics")
            if str(entry["x"]) in points:
                raise _no_report(f"{where}.x: {entry['x']} stands there twice")
            if metrics:
                points[str(entry["x"])] = _figures(metrics, f"{where}.metrics")
        if points:
            yield Curve(str(name), points)


def _figures(entry: Mapping[str, Any], where: str) -> dict[str, Figure]:
    out: dict[str, Figure] = {}
    for name in NAMES:
        place = f"{where}.{name}"
        found = _object(entry.get(name), place)
        out[name] = {one: _number(found.get(f"p{one}"), f"{place}.p{one}") for one in PERCENTILES}
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
    if not isinstance(value[key], list | tuple):
        raise _no_report(f"{before}{key} is no list")
    return value[key]  # type: ignore[no-any-return]


def _no_report(why: str) -> BadInput:
    return BadInput(f"no report of rpc: {why}")
