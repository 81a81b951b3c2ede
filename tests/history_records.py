"""Runs of one suite, a night apart, for the tests of histories."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec import structs

from serve_bench.core.result import Result
from serve_bench.core.traffic import Row
from tests.records import ROWS, store_run
from tests.versus_records import HOST, micro_result, micro_run

FIRST = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

#: Requests/s of nine nights, about 3 % apart, and where the level falls by 15 % at the sixth.
QUIET = (500.0, 512.0, 488.0, 505.0, 495.0, 508.0, 492.0, 503.0, 497.0)
FALLEN = (*QUIET[:5], *(0.85 * rate for rate in QUIET[5:]))
#: The first row in three launches a night, the third in one.
SPLIT = (0.99, 1.0, 1.01)


def night(
    at: int,
    by_row: Mapping[Row, Sequence[float]],
    *,
    ray: str = "2.60.0",
    tool: str = "0.1.0",
    host: Mapping[str, Any] | None = None,
    suite: Mapping[str, Any] | None = None,
    **given: Any,
) -> Result:
    """Make the run of a night, from 0, with a rate for each launch of each row."""
    run = micro_run(f"n{at + 1}", **(suite or {}))
    run = replace(
        run,
        started_at=(FIRST + timedelta(days=at)).isoformat(),
        tool_version=tool,
        host=structs.replace(HOST, **(host or {})),
    )
    return micro_result(by_row, run=run, versions={"ray": ray, "python": "3.11.9"}, **given)


def nights(by_row: Mapping[Row, Sequence[float | None]], **given: Any) -> list[Result]:
    """Make a run a night with one launch; None: the row was not measured in that night."""
    count = max(map(len, by_row.values()))
    found = []
    for at in range(count):
        rates = {row: [rate] for row, values in by_row.items() if (rate := values[at]) is not None}
        found.append(night(at, rates, **given))
    return found


def in_folders(results: Sequence[Result]) -> dict[str, Result]:
    return {f"results/{result.run.id}": result for result in results}


def nine() -> list[Result]:
    """Make nine nights: `single client` in three launches, `100 connections` in one.

    The latter falls in the sixth, when Ray changed; requests failed in the third, the tool changed
    in the eighth.
    """
    found = []
    for at, (rate, fallen) in enumerate(zip(QUIET, FALLEN, strict=True)):
        run = night(
            at,
            {ROWS[0]: [0.5 * rate * factor for factor in SPLIT], ROWS[2]: [fallen]},
            ray="2.60.0" if at < 5 else "2.61.0",
            tool="0.1.0" if at < 7 else "0.2.0",
            failed=4 if at == 2 else 0,
        )
        found.append(run)
    return found


def store(folder: Path, results: Sequence[Result]) -> Path:
    """Real folders of runs, each named as its run; returns the one around them."""
    for result in results:
        store_run(folder / result.run.id, result)
    return folder
