"""The plots of a run of ladders, of rpc or of a curve of scale: PNG and SVG in its folder, where
the extra `plot` is there."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serve_bench.core.result import Result


def draw_plots(
    folder: Path, result: Result, *, published: bool = False, asked: bool = False
) -> list[Path]:
    """Draws requests/s and latency over clients, for a run of ladders that measured anything, the
    four metrics over the x axis, for one of rpc, and each quantity over replicas, for a curve.

    Without matplotlib, or where nothing was measured, one line says so; of a run that has no plot
    only if one was asked for. Raises RunFailed when a file cannot be written,
    BadInput where the record names no command.
    """
    if not _has_plot(result) or not result.trials:
        if asked:
            print(f"no plot: the run holds {_missing(result)}", file=sys.stderr)
        return []
    if find_spec("matplotlib") is None:
        print("no plot: pip install 'serve-bench[plot]', then report --plot", file=sys.stderr)
        return []
    from serve_bench.core.errors import BadInput, RunFailed
    from serve_bench.store.files import why, write_whole

    command = result.run.command
    if not re.fullmatch("[a-z-]+", command):  # the record may come from elsewhere: it is no path
        raise BadInput(f"{folder}: {command!r} is no command of serve-bench")
    draw = _draw_of(result, published)
    places = []
    for kind in ("png", "svg"):
        place = folder / f"{command}.{kind}"
        try:
            write_whole(place, draw(kind))
        except OSError as error:
            raise RunFailed(f"{place}: cannot be written: {why(error)}") from None
        except BadInput as error:
            print(f"no {error}", file=sys.stderr)
            return []
        places.append(place)
    print(f"plots: {', '.join(str(place) for place in places)}", file=sys.stderr)
    return places


def _has_plot(result: Result) -> bool:
    if result.run.command == "scale":
        return result.run.suite.get("workload") == "curve"
    return result.run.command == "rpc" or result.run.suite.get("ladder") is not None


def _missing(result: Result) -> str:
    return {"rpc": "no measured world", "scale": "no curve with a measured size"}.get(
        result.run.command, "no ladder with a measured step"
    )


def _draw_of(result: Result, published: bool) -> Callable[[str], bytes]:
    """What makes the plot as the bytes of a kind of file."""
    if result.run.command == "rpc":
        return _rpc(result, published)
    return _curve(result) if result.run.command == "scale" else _ladders(result, published)


def _ladders(result: Result, published: bool) -> Callable[[str], bytes]:
    from serve_bench.report.ladder.plot import plot_ladders

    return lambda kind: plot_ladders(result, kind, published=published)


def _rpc(result: Result, published: bool) -> Callable[[str], bytes]:
    from serve_bench.report.rpc.json_form import benchmark_report
    from serve_bench.report.rpc.plot import plot_rpc

    report = benchmark_report(result)
    return lambda kind: plot_rpc(report, kind, published=published)


def _curve(result: Result) -> Callable[[str], bytes]:
    from serve_bench.report.scale.plot import plot_scale

    return lambda kind: plot_scale(result, kind)
