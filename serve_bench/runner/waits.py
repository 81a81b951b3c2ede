"""A further load after a row that nothing full explains, looked at from inside the replicas.

What it finds stands in the record of the trial (`waits`), beside the figures and in none of them:
the trial is over when it begins. First one request after another, which tells what a request takes
alone; then the load of the row once more, for a moment, while threads in the replicas see what
requests wait in (cluster/waiting.py). Rule: it fails without consequence, and then says why. When
it is worth its time says verdict/waits.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from serve_bench.analysis.statistics import merged
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.result import JsonObject, Trial
from serve_bench.load import LoadError
from serve_bench.runner.load_place import Drive
from serve_bench.serving.server import LaunchFailed, Serving

ALONE_REQUESTS: Final = 8
ALONE_MOST_S: Final = 2.0
"""So many requests one by one, or as many as this time brings: their median is told."""

LEAST_S: Final = 0.8
MOST_S: Final = 5.0
"""How long the load is on again: three latencies of the row, within these."""


def look(
    serving: Serving, trial: Trial, load: Load, drive: Drive, mark: Mapping[str, str]
) -> JsonObject:
    """What requests of this row wait in; `why_not` where it could not be looked at."""
    p50_ns = merged([trial], "latency").percentile(0.5) or 0.0
    seconds = min(MOST_S, max(LEAST_S, 3 * p50_ns / 1e9))
    one = replace(
        load,
        connections=1,
        processes=1,
        count=ALONE_REQUESTS,
        each=None,
        rate=None,
        stages=(),
        max_connections=None,
        ramp=False,
        spin=False,
        arrivals="constant",
    )
    most = replace(load, count=None, each=None)
    begun = False
    try:
        alone = drive(one, Timing(0.0, 0.0, windows=1, window_s=ALONE_MOST_S), mark=mark)
        serving.begin_look()
        begun = True
        result = drive(most, Timing(0.3, 0.3, windows=1, window_s=seconds), mark=mark)
        until_ns = result.started_at_ns + int(result.duration_s * 1e9)
        begun = False
        replicas = serving.end_look(result.started_at_ns, until_ns)
    except (LoadError, LaunchFailed) as error:
        return {"why_not": str(error)}
    finally:
        if begun:
            now = time.time_ns()
            _quietly(serving, now)
    return {
        "seconds": round(result.duration_s, 3),
        "rate": result.rate,
        "p50_ms": _p50_ms(result),
        "alone_p50_ms": _p50_ms(alone),
        "replicas": [_rounded(one) for one in replicas],
    }


def _quietly(serving: Serving, now_ns: int) -> None:
    """Ends a look of which nothing is wanted any more."""
    try:
        serving.end_look(now_ns, now_ns)
    except LaunchFailed:
        return  # the cluster is gone, and the look with it; the runner sees that itself


def _p50_ms(result: LoadResult) -> float | None:
    value = result.latency.percentile(0.5)
    return None if value is None else round(value / 1e6, 3)


def _rounded(content: Any) -> Any:
    """Numbers with three decimals: they are means over some twenty looks."""
    if isinstance(content, float):
        return round(content, 3)
    if isinstance(content, Mapping):
        return {name: _rounded(value) for name, value in content.items()}
    return [_rounded(one) for one in content] if isinstance(content, list) else content
