"""The plots of a run of ladders: PNG and SVG in its folder, where the extra `plot` is there."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serve_bench.result import Result


def draw_plots(
    folder: Path, result: Result, *, published: bool = False, asked: bool = False
) -> list[Path]:
    """Draws requests/s and latency over clients, for a run of ladders that measured anything.

    Without matplotlib, or where no step was measured, one line says so; without a ladder only if a
    plot was asked for. Raises RunFailed when a file cannot be written.
    """
    if result.run.suite.get("ladder") is None or not result.trials:
        if asked:
            print("no plot: the run holds no ladder with a measured step", file=sys.stderr)
        return []
    if find_spec("matplotlib") is None:
        print("no plot: pip install 'serve-bench[plot]', then report --plot", file=sys.stderr)
        return []
    from serve_bench.errors import BadInput, RunFailed
    from serve_bench.files import why, write_whole
    from serve_bench.report.plot_ladders import plot_ladders

    places = []
    for kind in ("png", "svg"):
        place = folder / f"{result.run.command}.{kind}"
        try:
            write_whole(place, plot_ladders(result, kind, published=published))
        except OSError as error:
            raise RunFailed(f"{place}: cannot be written: {why(error)}") from None
        except BadInput as error:
            print(f"no {error}", file=sys.stderr)
            return []
        places.append(place)
    print(f"plots: {', '.join(str(place) for place in places)}", file=sys.stderr)
    return places
