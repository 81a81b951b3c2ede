"""Loads two targets in turn, in windows: for loads that cannot be sliced.

An open loop has no slices, and a slice of requests that take seconds would be as long as a window.
Each window is a load of its own, with its own connections and a short warm-up, so that only one
target is ever loaded. The result has the form of that of slices, a window in place of a slice.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from serve_bench.core.load_result import LoadResult, Progress, Slice, SlicedResult, Warmup
from serve_bench.core.load_spec import Load, Slices, Timing
from serve_bench.core.request_spec import SpecError
from serve_bench.load.connect import choose_address
from serve_bench.load.driver import Watch, drive_load
from serve_bench.load.failures import LoadError
from serve_bench.load.merge import combine, merged, result_of, worker_report
from serve_bench.load.share import shares
from serve_bench.load.shared import COMPLETED, KINDS, START, Shared
from serve_bench.load.workers import STUCK_S, Crew, await_ready, connecting_s, orders_for

# --------------------------------------------------------------------------------------------------
# Loads two targets in turn, in slices of time: the least noisy way to compare them.
#
# Rule: one worker holds the connections of both, so that both are treated alike; which slice comes
# first is drawn for each pair. Comparing the rates is `statistics`'s affair.

START_AHEAD_NS = 5_000_000


def drive_slices(
    loads: tuple[Load, Load],
    plan: Slices,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    mark: Mapping[str, str] | None = None,
) -> SlicedResult:
    """Load the two targets in turn and return both results and every slice.

    Both loads must be closed loops of one client with the same number of connections, without a
    count; SpecError says which is not. Raises LoadError as `drive_load` does.
    """
    first, second = loads
    for load in loads:
        if load.open_loop or load.total is not None or load.client not in ("raw", "aiohttp"):
            raise SpecError("slices need a closed loop of the raw or aiohttp client, and no count")
    if (first.client, first.connections) != (second.client, second.connections):
        raise SpecError("slices need the same client and number of connections on both sides")
    # No windows: the slices take their place. The timing only carries what a worker wants to know.
    timing = Timing(warmup_min_s=0.0, warmup_max_s=0.0, windows=1, drain_s=plan.drain_s)
    addresses = [choose_address(load.request, load.connect_timeout_s) for load in loads]
    shared = Shared.create(2)
    try:
        sides = [
            {"load": load.to_json(), "address": [int(at.family), at.sockaddr]}
            for load, at in zip(loads, addresses, strict=True)
        ]
        (share,) = shares(first, 1)
        orders = [orders_for(share, sides, timing, shared, plan)]
        with Crew(orders, mark or {}) as crew:
            return _drive(loads, plan, timing, shared, crew, on_progress)
    finally:
        shared.close()


def _drive(
    loads: tuple[Load, Load],
    plan: Slices,
    timing: Timing,
    shared: Shared,
    crew: Crew,
    on_progress: Callable[[Progress], None] | None,
) -> SlicedResult:
    seconds = plan.warmup_s + 2 * plan.pairs * plan.slice_s
    shown = replace(timing, window_s=max(0.01, seconds))
    watch = Watch(shared, shown, on_progress)
    notes = await_ready(crew, loads, lambda: watch.look("connect"))
    start = time.perf_counter_ns() + START_AHEAD_NS
    started_at_ns = time.time_ns() + START_AHEAD_NS + int(plan.warmup_s * 1e9)
    shared.words[START] = start
    watch.measure_from(start + int(plan.warmup_s * 1e9), start + int(seconds * 1e9))
    # Each slice may take its drain on top; a request lasts no longer than its time-out.
    longest_s = max(load.timeout_s for load in loads)
    deadline = time.monotonic() + 2 * seconds + longest_s + STUCK_S
    heard = 0
    while crew.alive and "done" not in crew.workers[0].said:
        crew.listen(0.25)
        watch.look("measure")
        if shared.total(COMPLETED) != heard:  # it makes progress, so it may go on
            heard = shared.total(COMPLETED)
            deadline = max(deadline, time.monotonic() + longest_s + STUCK_S)
        if time.monotonic() > deadline:
            crew.workers[0].give_up()
            deadline += STUCK_S
    worker = crew.workers[0]
    if "done" not in worker.said:
        request = loads[0].request
        reason = f"no worker is left: {worker.failure(0).reason}"
        raise LoadError("worker", request.host, request.port, reason)
    return _result(loads, plan, timing, shared, crew, started_at_ns, notes)


def _result(
    loads: tuple[Load, Load],
    plan: Slices,
    timing: Timing,
    shared: Shared,
    crew: Crew,
    started_at_ns: int,
    notes: tuple[str, ...],
) -> SlicedResult:
    worker = crew.workers[0]
    said = worker.said["done"]
    slices = tuple(Slice(**one) for one in said["slices"])
    reports: Sequence[dict[str, Any]] = said["reports"]

    def side(k: int) -> LoadResult:
        mine = [one for one in slices if one.side == k]
        report = reports[k] | {"windows": [one.completed for one in mine]}
        histograms = {kind: merged(shared, [k], kind) for kind in KINDS}
        warmup = Warmup(plan.warmup_s, False, 0)
        result = result_of(loads[k], timing, warmup, [report], histograms, (worker_report(worker),))
        return replace(
            result,
            window_s=plan.slice_s,
            duration_s=sum(one.length_s for one in mine),
            started_at_ns=started_at_ns,
            connecting_s=connecting_s(crew),
            notes=notes,
        )

    return SlicedResult((side(0), side(1)), slices)


# --------------------------------------------------------------------------------------------------


def drive_windows(
    loads: tuple[Load, Load],
    plan: Slices,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    mark: Mapping[str, str] | None = None,
) -> SlicedResult:
    """Load the two targets in turn, in windows of `plan.slice_s`; the warm-up of the plan comes
    before each. Raises LoadError as `drive_load` does; a KeyboardInterrupt leaves nothing."""
    draw = random.Random(f"{plan.seed}/slices")
    timing = Timing(plan.warmup_s, plan.warmup_s, 1, plan.slice_s, plan.drain_s)
    results: tuple[list[LoadResult], list[LoadResult]] = ([], [])
    slices: list[Slice] = []
    began_ns = 0
    for pair in range(plan.pairs):
        order = [0, 1]
        draw.shuffle(order)
        for side in order:
            result = drive_load(loads[side], timing, on_progress=on_progress, mark=mark)
            began_ns = began_ns or result.started_at_ns
            results[side].append(result)
            slices.append(as_slice(result, side, pair, began_ns))
    return SlicedResult((joined(loads[0], results[0]), joined(loads[1], results[1])), tuple(slices))


def as_slice(result: LoadResult, side: int, pair: int, began_ns: int) -> Slice:
    """A load of one window in the form of a slice."""
    return Slice(
        side=side,
        pair=pair,
        begun_s=(result.started_at_ns - began_ns) / 1e9,
        length_s=result.duration_s,
        completed=result.completed_in_windows,
        failed=result.measured.failed_total,
        cpu_s=result.cpu_s,
    )


def joined(load: Load, results: Sequence[LoadResult]) -> LoadResult:
    """The results of one load that was driven several times, as one that lasted as long as all."""
    return replace(
        combine(load, results),
        warmup=results[0].warmup,  # each window has one of its own, all alike
        windows=tuple(count for one in results for count in one.windows),
        duration_s=sum(one.duration_s for one in results),
        mean_in_flight=None,  # the sum over windows that came one after the other is none
    )
