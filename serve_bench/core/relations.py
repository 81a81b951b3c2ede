"""Relations between the figures of a trial: what breaks one was not written by this tool. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from serve_bench.core.errors import FormatError
from serve_bench.core.facts import CourseFacts
from serve_bench.core.histogram import HistogramFacts, slot
from serve_bench.core.result import PlannedTrial, Trial
from serve_bench.core.usage import BATCH_SIZE, UNIT

PLANNED: Final = ("round", "variant", "cell", "row.label", "row.client", "row.loop")

SECONDS: Final = ("due", "sent", "answered", "ended", "waiting", "latency")
"""What is known of each second of a load."""

CPU_SLACK: Final = 1.5
"""Readings of the CPU are off by up to this factor, since clocks have ticks."""

COARSE_BITS: Final = (0, 4, 5)
"""By how many bits the slots of a stored histogram are coarser: of most, of a soak, of a course."""


def check_relations(trial: Trial, planned: PlannedTrial | None = None) -> None:
    """Raise FormatError, naming the field, for figures of a trial that cannot all be true.

    It also raises for a trial that is not the one planned under its key. Connections may differ
    from the plan: those of several nodes are added up."""
    of_seconds = () if trial.course == CourseFacts() else _check_course(trial)
    for faults in (_check_histograms(trial), _check_counts(trial), _check_rates(trial), of_seconds):
        for fault in faults:
            raise FormatError(f"trial.{fault}")
    for name in PLANNED if planned is not None else ():
        if attrgetter(name)(trial) != attrgetter(name)(planned):
            raise FormatError(f"trial.{name}: is not that of the plan")


def _check_histograms(trial: Trial) -> Iterator[str]:
    histograms: dict[str, HistogramFacts] = {}
    for name, metric in trial.metrics.items():
        unit = "requests/s" if name.endswith("throughput") else metric.unit
        if metric.histogram is not None:
            unit = UNIT if name == BATCH_SIZE else "ns"
            histograms[f"metrics.{name}"] = metric.histogram
        if metric.unit != unit:
            yield f"metrics.{name}: its unit is {metric.unit}, not {unit}"
    for second, histogram in enumerate(trial.course.latency):
        if histogram is not None:
            histograms[f"course.latency[{second}]"] = histogram
    for name, histogram in histograms.items():
        index, count, highest = histogram["index"], histogram["count"], histogram["max"]
        ends = {(slot(highest) >> bits << bits) + (1 << bits >> 1) for bits in COARSE_BITS}
        if len(index) != len(count) or index != sorted({*index}) or 0 in count:
            yield f"{name}: the slots of a histogram rise, and each has a count"
        elif index[-1] not in ends if index else highest:
            yield f"{name}: its max is {highest}, which is not in the last slot"


def _check_counts(trial: Trial) -> Iterator[str]:
    """Yield where requests do not add up, a CPU has more than its cores, or a node is doubled."""
    counts, client, host = trial.counts, trial.client, trial.usage.host
    accounts = {"client.in_windows": client.in_windows, "client.total": client.total}
    for name, account in {**accounts, "counts": counts}.items():
        if account is not None and not account.balanced:
            yield f"{name}: sent is not the sum of completed, failed and in_flight"
    latency, expected = trial.metrics.get("latency"), counts.completed - client.drained
    if latency and latency.histogram and sum(latency.histogram["count"]) != expected:
        yield f"metrics.latency: its counts do not add up to {expected} completed requests"
    most = 100 * (host.cores or math.inf) * CPU_SLACK
    used = {"host": host.cpu_percent}
    used |= {f"processes.{process.pid}": process.cpu_percent for process in trial.usage.processes}
    for name, percent in used.items():
        if percent is not None and not -10.0 <= percent <= most:
            yield f"usage.{name}: {percent:g} % of {host.cores} cores"
    nodes = [node.node for node in client.nodes]
    if len(nodes) > len({*nodes}):
        yield "client.nodes: a node stands there twice"


def _check_rates(trial: Trial) -> Iterator[str]:
    """Yield where the rates of windows do not give the requests that were counted.

    In a closed loop a window has its shares of the responses in flight at its ends."""
    main, within = trial.metrics.get("throughput"), trial.client.in_windows
    if main is None or (rates := main.windows) is None:
        return
    completed, shared = trial.completed_in_windows, trial.row.connections
    least = most = sum(rates) * trial.window_s
    if (sliced := trial.client.slices) is not None:
        lengths = sliced.length_s
        least = most = sum(rate * length for rate, length in zip(rates, lengths, strict=False))
        completed = sum(sliced.completed)
        if sliced.requests is not None and sliced.requests < completed:
            yield f"client.slices.requests: fewer than the {completed} of the slices"
        shared *= 0 if sliced.method == "slices" else len(rates)
    elif trial.row.requests_each is not None:
        seconds = trial.seconds.connecting + trial.seconds.measured
        least = most = sum(rates) * (seconds or trial.window_s)
    elif within is not None:
        shared = max(within.carried_in, within.in_flight)
    elif 0.0 not in rates:  # windows of as many calls each: `window_s` is their mean length
        least = len(rates) ** 2 / sum(1 / rate for rate in rates) * trial.window_s
    if trial.flags.interrupted:  # the last window was not whole, and has no rate
        most = max(most, completed)
    slack = 1 + shared + completed / 100  # rates, and the times that they are of, are rounded
    if not least - slack <= completed <= most + slack:
        yield f"metrics.throughput: {most:.0f} requests by its windows, {completed} by the counts"


def _check_course(trial: Trial) -> Iterator[str]:
    """Yield where the seconds of a load do not fit: what is due is answered, failed or pending."""
    course = trial.course
    named: dict[str, Sequence[object]] = {name: getattr(course, name) for name in SECONDS}
    named |= {f"failed.{name}": values for name, values in course.failed.items()}
    named |= {f"cpu.{name}": values for name, values in course.cpu.items()}
    behind = int(course.after_s)  # CPU is seen after the load, too
    for name, values in named.items():
        seconds = len(course.due) + (behind if name.startswith("cpu.") else 0)
        if len(values) != seconds:
            yield f"course.{name}: {len(values)} seconds of {seconds}"
            return
    zeros = [0] * len(course.due)
    lost = [sum(counts) for counts in zip(zeros, *course.failed.values(), strict=True)]
    for second, due in enumerate(course.due):
        answered, timed = course.answered[second], course.latency[second]
        if due < answered + lost[second]:
            yield f"course.due: fewer in second {second} than were answered and failed"
        if (sum(timed["count"]) if timed else 0) != answered:
            yield f"course.latency: second {second} has not {answered} answers"
        if course.waiting[second] > sum(course.due[: second + 1]):
            yield f"course.waiting: more in second {second} than were due by then"
    if sum(course.ended) > sum(course.answered):
        yield "course.ended: more than were answered"
    if course.due and course.losses is None:
        yield "course.losses: is not there"
    elif course.losses not in (None, sum(lost)):
        yield f"course.losses: {course.losses}, where {sum(lost)} failed"
