"""A sitting that is gone through without clusters: its rows are measured by a function."""

from collections.abc import Callable, Iterable
from typing import Any

from serve_bench.cli.sitting import Outcome, Place, Sitting, _open_folder
from serve_bench.core.result import Trial
from serve_bench.runner.load_source import LocalLoads
from serve_bench.store import read


def sit_through(
    sitting: Sitting, measure: Callable[[Any], Iterable[Trial]], stopped: Callable[[], bool]
) -> Outcome:
    """Keep what is measured in each row that is left, until a Ctrl-C comes before a row."""
    folder = _open_folder(sitting)
    plan: Any = sitting.work(Place(folder.path, "x", LocalLoads()))
    interrupted = False
    with folder:
        for work in [work() for launch in plan.launches for _, work in launch.cells]:
            while not interrupted and (row := work.next()) is not None:
                interrupted = stopped()
                for trial in () if interrupted else measure(row):
                    folder.append(trial)
                work.add(row, None)
    return Outcome(folder.path, read(folder.path), False, interrupted)
