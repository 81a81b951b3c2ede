"""The traced requests of a load: how many to order, and what their marks say afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import psutil
from msgspec import structs

from serve_bench.analysis.waterfall import summary_of
from serve_bench.core.facts import WaterfallFacts
from serve_bench.core.marks import FOLDER, ProcessMarks, TracedRequest, by_trace
from serve_bench.load.tally import NEVER
from serve_bench.load.traces import TraceLog

FEWEST_TRACED: Final = 50
"""Requests that are traced in the windows of a row, at least."""

MARKS_S, MOST_MARKS_S = 0.1, 1.0
"""The span of a proxy ends after the client has its answer: 10 ms later on an idle host, once its
event loop is free on a busy one (Ray 2.60). So marks are read until none is missing, or so long."""


def trace_log(share: float, measured_s: float) -> TraceLog:
    """Choose what to trace of a load: a share, and FEWEST_TRACED in windows of `measured_s`."""
    # Half as many again: a connection that is chosen may be busy for a while.
    return TraceLog(share, 1.5 * FEWEST_TRACED / measured_s)


def waterfall(
    requests: Sequence[TracedRequest], marks: Callable[[], Sequence[ProcessMarks]]
) -> WaterfallFacts:
    """Compute where the time of the traced requests went, once Serve has written their marks."""
    ended = [request for request in requests if request.end_ns < NEVER]
    answered = [request for request in ended if request.status]
    failed = [request for request in ended if not request.status]
    began_s = time.monotonic()
    while True:
        time.sleep(MARKS_S)
        marked = marks()
        ahead_ns = time.time_ns() - time.perf_counter_ns()
        lost = sum(file.lost for file in marked)
        summary = summary_of(answered, failed, by_trace(marked), lost, ahead_ns)
        if not summary.unseen:  # what is lost is of earlier loads
            summary = structs.replace(summary, lost_marks=0)
        if not summary.unseen or time.monotonic() - began_s > MOST_MARKS_S:
            return structs.replace(summary, cut=len(requests) - len(ended))


def marks_folder(pid: int) -> Path | None:
    """Return where a process of Serve keeps the marks of traced requests.

    None where it makes none, or belongs to another user.
    """
    try:
        folder = psutil.Process(pid).environ().get(FOLDER)
    except (psutil.Error, OSError):
        return None
    return None if folder is None else Path(folder)
