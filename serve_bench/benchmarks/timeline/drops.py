"""What went wrong in the launches of a cell, in words: answers that drop while requests wait though
as many replicas gave more before, and requests that were lost near an event."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import mean, median
from typing import Final

from serve_bench.analysis.course import AFTER_S, Transient, events_of
from serve_bench.analysis.statistics import silent_from
from serve_bench.analysis.verdict import limited_by
from serve_bench.analysis.verdict.router import router_words
from serve_bench.core.figures import counted
from serve_bench.core.result import JsonObject, Trial
from serve_bench.view.figures import shorten

AROUND_S: Final = 2
"""Answers of an overloaded proxy come in bursts, 2 s apart (Ray 2.60)."""

DROP_S: Final = 5
"""Fewer seconds of a load may be a pause of the host, or the start of replicas."""

NEAR_S: Final = 1.0
"""A lost request whose end is so near to an event is counted with it. A process that ends may lose
requests before it is gone: HAProxy did so 1 s before (Ray 2.60)."""


def describe_drop(course: JsonObject, transient: Transient, wait_s: float | None) -> str:
    """The longest drop of the answers of a launch: seconds in which requests wait, and as many
    replicas answer fewer than half of what no more of them did before. Empty where it has fewer
    than DROP_S seconds. Answers that come in bursts are no drop: a second stands for AROUND_S
    before and after it too, as far as no more and no fewer replicas ran."""
    ended = course["ended"]
    states = [transient.replicas.at(second + 0.5) for second in range(len(ended))]
    counts = [0 if state is None else state.running for state in states]
    most: dict[int, float] = {}
    drops: dict[int, dict[int, float]] = {}
    for second, out in enumerate(transient.out):
        running = counts[second]
        around = range(max(0, second - AROUND_S), min(len(ended), second + AROUND_S + 1))
        rate = mean(ended[near] for near in around if counts[near] == running)
        held = max((value for few, value in most.items() if few <= running), default=0.0)
        if out and course["waiting"][second] >= held > 0 and rate < held / 2:
            drops.setdefault(running, {})[second] = held
        most[running] = max(most.get(running, 0.0), rate)
    running, held_before = max(drops.items(), key=lambda drop: len(drop[1]), default=(0, {}))
    if len(held_before) < DROP_S:
        return ""
    rate = median(ended[second] for second in held_before)
    deployments = {change["deployment"] for change in course.get("changes") or ()}
    words = router_words(rate, running, wait_s) if len(deployments) == 1 else None
    return (
        f"in {len(held_before)} s from second {min(held_before)} on, {shorten(rate)} answers/s "
        f"come while requests wait, though at most {counted(running, 'replica')} gave "
        f"{shorten(max(held_before.values()))}/s before: the replicas are not the limit"
        f"{f'; {words}' if words else ''}"
    )


def describe_drops(
    launches: Sequence[tuple[Trial, Transient]], wait_s: float | None
) -> Iterator[str]:
    """What held up each launch that stood still, or whose answers dropped. `wait_s`: the longest
    wait of Serve's router, where it is known."""
    for trial, transient in launches:
        if silent_from(trial) is None:
            text = describe_drop(trial.course, transient, wait_s)
        else:
            limit = limited_by(trial)
            is_clear = limit.cause != "unclear"
            text = f"it is limited by {limit.text}" if is_clear else limit.reasons[0]
        if text:
            yield f"launch {trial.round}: {text}" if len(launches) > 1 else text


def near_events(courses: Iterable[JsonObject]) -> Counter[str]:
    """Lost requests by the kind of the event nearest to their end, within NEAR_S (as well as an end
    of a process is known); those without one under an empty name."""
    near: Counter[str] = Counter()
    for course in courses:
        events = [event for event in events_of(course) if not event.what.endswith("ready")]
        for due_s, end_s, _ in course.get("lost") or ():
            moment = due_s if end_s is None else end_s
            distances = [(abs(moment - event.at_s), event.what) for event in events]
            distance, event_name = min(distances, default=(math.inf, ""))
            near[event_name if distance <= NEAR_S + AFTER_S else ""] += 1
    return near


def describe_near(courses: Iterable[JsonObject]) -> Iterator[str]:
    """Near which events requests were lost, where at least half of them were."""
    near = near_events(courses)
    total, apart = near.total(), near.pop("", 0)
    if near.total() and 2 * near.total() >= total:
        kinds = ", ".join(f"{what} ({count:,})" for what, count in near.most_common(3))
        yield f"{total - apart:,} of {total:,} lost requests ended within {NEAR_S:g} s of: {kinds}"
