"""The search on each launch of a run: from its records to the next probe, and to its estimate.

Pure. A launch first has a closed loop, which warms it up and says about what it serves at most;
then the probes. Rule: what comes next follows from the records alone, so a resumed run continues as
if it had not ended; a launch that was broken off is searched anew."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Final, TypeAlias

from serve_bench.analysis.capacity.estimate import estimate_launch, is_enough, pool_launches
from serve_bench.analysis.capacity.model import Ask, Bound, Capacity, LaunchEstimate, Probe
from serve_bench.analysis.capacity.search import RateSearch
from serve_bench.analysis.connections import NOTED, falls_short
from serve_bench.analysis.statistics import MAIN, latency_figures, merged
from serve_bench.analysis.verdict import limited_by
from serve_bench.core.capacity import CapacitySearch, closed_row, probe_row
from serve_bench.core.facts import ProbeSlices, SliceCounts
from serve_bench.core.load_result import GIVEN_UP
from serve_bench.core.load_spec import MAX_RATE
from serve_bench.core.plan import plan_trial
from serve_bench.core.result import JsonObject, PlannedTrial, Result, Trial, cell_slug
from serve_bench.core.slo import ITL, LATENCY, TTFT, Objective, Slo
from serve_bench.core.traffic import Row, Traffic

START: Final = 0.5
"""The first rate of a launch, as a share of what its closed loop served: an open loop at that very
rate has a queue that only grows."""

LEAST_RATE: Final = 0.1
"""The lowest rate of a probe, requests/s."""

LEAST_MOST: Final = 1e-6
"""What a bound of no error at all allows: one in a million, so that it has a logarithm."""

NO_LATENCY: Final = frozenset({*GIVEN_UP, "cut", "unsent"})
"""Errors without an answer: they count in latencies with the time that they were waited for."""

CLIENTS_FAULT: Final = ("client", "offered load")
"""Causes of a probe whose client reports that it added to the latency, or was the limit, in which
the service is not to blame: all else was idle, or all was answered in time. Where a process of the
service or the host is full, it is."""

Stream: TypeAlias = tuple[int | None, int, int, tuple[int, ...]]
"""The events of a request: first_ns, gaps, gaps_ns, and how many were above each of gap_limits."""

Requests: TypeAlias = Iterable[
    tuple[int, int, int | None, int, str | None, Stream | None, int | None]
]
"""Rows of a log of requests: connection, start_ns, latency_ns, status, error, stream, sent_ns."""

Place: TypeAlias = tuple[str, str]
"""Of a capacity: variant, and cell as cell_slug has it."""


def bounds_of(slo: Slo) -> tuple[Bound, ...]:
    """Return the objectives as a search sees them."""
    bounds = []
    for objective in slo.objectives:
        bound = Bound(objective.name, objective.limit, "mean", objective.limit)
        if objective.allowed is not None:
            limit_ns = objective.limit if objective.timed else objective.within_ns
            bound = Bound(objective.name, max(objective.allowed, LEAST_MOST), limit_ns=limit_ns)
        bounds.append(bound)
    return tuple(bounds)


def gap_limits(slo: Slo) -> tuple[int, ...]:
    """Return the limits of gaps between events (ns), one for each objective, for a probe's log."""
    return tuple(round(objective.limit) for objective in slo.objectives if objective.metric == ITL)


def slices_of(requests: Requests, slo: Slo, seconds: float, slice_s: float) -> ProbeSlices:
    """Count for each bound and each slice the requests that were due, and those that violate it.

    That is what the record of a probe keeps of its requests. What a request waited for until it was
    given up is beyond every limit. Of gaps between events each counts where its request was due."""
    count = max(1, math.ceil(seconds / slice_s - 1e-9))
    bounds = {objective.name: ([0] * count, [0] * count) for objective in slo.objectives}
    whole_ns = seconds * 1e9
    limits = gap_limits(slo)
    for _, start_ns, latency_ns, _, error, stream, _ in requests:
        number = min(count - 1, max(0, int(start_ns / (slice_s * 1e9))))
        until_ns = whole_ns - start_ns if latency_ns is None else latency_ns
        for objective in slo.objectives:
            due, bad = _counts(objective, until_ns, error, stream, limits)
            bounds[objective.name][0][number] += due
            bounds[objective.name][1][number] += bad
    counts = {name: SliceCounts(tuple(due), tuple(bad)) for name, (due, bad) in bounds.items()}
    return ProbeSlices(slice_s=slice_s, bounds=counts)


def _counts(
    objective: Objective,
    until_ns: float,
    error: str | None,
    stream: Stream | None,
    limits: Sequence[int],
) -> tuple[int, int]:
    """Return what a request adds to the two counts of an objective.

    `until_ns`: from its due time to its end, of one without an end to that of the probe. A failed
    one has no latency; its events count where they came."""
    if objective.kind == "errors":
        return 1, error is not None and objective.error in (None, error)
    if objective.kind == "goodput":
        return 1, error is not None or until_ns > (objective.within_ns or 0.0)
    # How many times are over, how many of them are beyond the limit, their sum; and since when,
    # from its due time, the request has waited for one more.
    count, beyond, sum_ns, since_ns = 0, 0, 0.0, 0.0
    if objective.metric == ITL:
        first_ns, gaps, gaps_ns, late = stream or (None, 0, 0, ())
        if first_ns is None:
            return 0, 0
        count, beyond, sum_ns = gaps, late[limits.index(round(objective.limit))], gaps_ns
        since_ns = first_ns + gaps_ns
        waits = error in NO_LATENCY
    else:
        took_ns = until_ns if error is None else None
        if objective.metric == TTFT:
            took_ns = None if stream is None else stream[0]
        if took_ns is not None:
            count, beyond, sum_ns = 1, took_ns > objective.limit, took_ns
        waits = took_ns is None and error in NO_LATENCY
    if not waits:
        return count, round(sum_ns) if objective.kind == "mean" else beyond
    if objective.kind != "mean":
        return count + 1, beyond + 1
    waited_ns = until_ns - since_ns
    if error == "cut":  # how long the others waited is known
        waited_ns = max(waited_ns, objective.limit)
    return count + 1, round(sum_ns + waited_ns)


def probe_of(trial: Trial, bounds: Sequence[Bound], front: str | None = None) -> Probe | None:
    """Return the probe of a trial; None without a rate, slices, or sound counts of each bound."""
    counts, slice_s = trial.slices.bounds, trial.slices.slice_s
    if not trial.row.rate_per_s or slice_s is None:
        return None
    slices = {bound.name: counts[bound.name] for bound in bounds if bound.name in counts}
    if not all(bound.name in slices and _sound(bound, slices[bound.name]) for bound in bounds):
        return None
    missed = [bound for bound in bounds if (slices[bound.name].value or 0.0) > bound.most]
    return Probe(
        trial.row.rate_per_s,
        slice_s,
        slices,
        trial.slices.began_s,
        client_bound=_is_clients_fault(trial, missed, front),
        whole=not trial.flags.interrupted,
        replicas=_replicas(trial),
        steady=all(len(numbers) == 1 for numbers in _ran(trial)),
    )


def _ran(trial: Trial) -> list[Sequence[int]]:
    """List for each deployment that Serve scales the numbers of replicas that ran, in order."""
    return [limit.ran for limit in trial.limits.values() if limit.ran]


def _replicas(trial: Trial) -> int | None:
    """Return the number of replicas of all of them at the end; None where Serve scales none."""
    ran = _ran(trial)
    return sum(numbers[-1] for numbers in ran) if ran else None


def _is_clients_fault(trial: Trial, missed: Sequence[Bound], front: str | None) -> bool:
    """Return whether the client was late, and so missed the rate or made times miss.

    It is if it sent less than the rate, or added more than NOTED to a time that missed: however
    late, it is no reason of an SLO that is met, nor of errors."""
    if trial.client.verdict is None or not trial.client.verdict.client_bound:
        return False
    due = trial.counts.sent + trial.counts.unsent
    added = (_added_ns(trial, bound) > NOTED * (bound.limit_ns or 0) for bound in missed)
    late = falls_short((trial.client.in_windows or trial.counts).sent, due) or any(added)
    return late and limited_by(trial, front).cause in CLIENTS_FAULT


def _added_ns(trial: Trial, bound: Bound) -> float:
    """Return what the client added to the time of a bound, without waits for a connection."""
    if bound.limit_ns is None:
        return 0.0
    lag = merged([trial], "send_lag").without_highest(trial.client.waited or 0)
    parts = (lag, merged([trial], "pickup"))
    if bound.kind == "mean":
        return sum(part.mean or 0.0 for part in parts)
    return sum(part.percentile(1 - bound.most) or 0.0 for part in parts)


def _sound(bound: Bound, counts: SliceCounts) -> bool:
    """Return whether counts can be those of requests: of each slice both, no more bad than all."""
    pairs = zip(counts.of, counts.bad, strict=False)
    alike = len(counts.of) == len(counts.bad) > 0
    return alike and (bound.kind == "mean" or all(bad <= due for due, bad in pairs))


def meets(probe: Probe, bounds: Sequence[Bound]) -> bool:
    """Return whether a probe, taken as it is, meets all bounds; without a request it meets none."""
    values = ((bound.most, probe.slices[bound.name].value) for bound in bounds)
    return all(value is not None and value <= most for most, value in values)


@dataclass
class LaunchSearch:
    """The search of a cell on one launch."""

    asked: CapacitySearch
    slo: Slo
    variant: str
    round: int
    cell: JsonObject
    traffic: Traffic | None = None
    start: float | None = None  # requests/s, where earlier launches found the capacity
    front: str | None = None
    closed: Trial | None = None
    trials: list[Trial] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    failed: int = 0  # loads in a row that gave nothing
    _estimate: LaunchEstimate | None = None  # by the probes so far, once it is asked for

    def next(self) -> PlannedTrial | None:
        """Return the next load to measure; None at the end."""
        if self.given_up or self.hopeless:
            return None
        if self.closed is None:
            return self._planned(closed_row(self.asked.connections, self.traffic))
        if (ask := self.ask) is None:
            return None
        number, connections = len(self.trials) + 1, self.connections(ask.rate)[0]
        return self._planned(probe_row(number, round(ask.rate, 3), connections, self.traffic))

    @property
    def given_up(self) -> bool:
        """Whether loads gave nothing: the closed loop, or MOST_FAILED probes in a row."""
        if self.closed is None:
            return self.failed > 0
        return self.failed >= MOST_FAILED or not self.closed.counts.completed

    @property
    def hopeless(self) -> bool:
        """Whether no lower rate would meet the SLO: the load is not why responses are slow.

        At the lowest probe, at most START of what the closed loop served, all was answered in time
        to be counted, and still HOPELESS of the requests were beyond a bound."""
        served = self.closed_rate
        pairs = zip(self.trials, self.probes, strict=True)
        whole = [pair for pair in pairs if pair[1].whole and pair[1].steady]
        if not whole or served is None:
            return False
        trial, probe = min(whole, key=lambda pair: pair[1].rate)
        if probe.client_bound or probe.rate > START * served or meets(probe, self.bounds):
            return False
        left = trial.counts.in_flight + trial.counts.unsent
        values = [(bound, probe.slices[bound.name].value or 0.0) for bound in self.bounds]
        limits = (HOPELESS if bound.kind == "share" else 2 * bound.most for bound, _ in values)
        beyond = any(value > limit for (_, value), limit in zip(values, limits, strict=True))
        return beyond and left <= LEFT * trial.counts.sent

    @property
    def ask(self) -> Ask | None:
        """The probe that the search asks for next; None at its end."""
        return self.search.next()

    @cached_property
    def search(self) -> RateSearch:
        """The search for the rate, which begins from what the closed loop served."""
        start = self.asked.start or self.start
        if start is None and (served := self.closed_rate):
            start = START * served
        limits = self.asked.precision, self.asked.launch_s
        return RateSearch(self.bounds, *limits, start, LEAST_RATE, MAX_RATE)

    @property
    def closed_rate(self) -> float | None:
        """Requests/s of the closed loop; None if it served none."""
        metric = None if self.closed is None else self.closed.metrics.get(MAIN)
        rate = statistics.fmean(metric.windows) if metric is not None and metric.windows else 0.0
        return rate or None

    @property
    def limit_s(self) -> float | None:
        """The longest time that the SLO allows a whole response, in seconds.

        None where it limits none, as with objectives of TTFT alone."""
        whole = [objective for objective in self.slo.objectives if objective.metric == LATENCY]
        times = [goal.limit if goal.timed else goal.within_ns for goal in whole]
        limits = [limit_s for limit_s in times if limit_s is not None]
        return max([*limits, LEAST_LIMIT_S * 1e9]) / 1e9 if limits else None

    @property
    def response_s(self) -> float:
        """How long responses of the closed loop take, its p99 in seconds."""
        closed = [] if self.closed is None else [self.closed]
        return (latency_figures(closed, (0.99,))[0] or 0.0) / 1e9

    def connections(self, rate: float) -> tuple[int, int]:
        """Return the connections of a probe, and the most that it may open.

        IN_FLIGHT times what is in flight where every request takes as long as the SLO allows."""
        most = MOST_CONNECTIONS
        if self.limit_s is not None:
            most = min(most, max(LEAST_CONNECTIONS, math.ceil(IN_FLIGHT * rate * self.limit_s)))
        return min(most, LEAST_CONNECTIONS), most

    def add(self, trial: Trial | None) -> None:
        """Add the trial of the load that `next` asked for; None if there is none."""
        if trial is None:
            self.failed += 1
            return
        self.failed = 0
        if self.closed is None:
            self.closed = trial
            return
        probe = probe_of(trial, self.bounds, self.front)
        if probe is not None:
            before = _replicas(self.trials[-1] if self.trials else self.closed)
            if before not in (None, probe.replicas):  # what waited meanwhile is not of the rate
                probe = replace(probe, steady=False)
            self.trials.append(trial)
            self.probes.append(probe)
            self.search.add(probe)
            self._estimate = None

    @property
    def finished(self) -> bool:
        """Whether it was searched to its end, and not given up."""
        return not self.given_up and self.next() is None

    @cached_property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds of the SLO."""
        return bounds_of(self.slo)

    def estimate(self) -> LaunchEstimate:
        """Return the estimate by the probes so far.

        That no rate meets the SLO is said only where that is sure, and not where the time was used
        up before."""
        if self._estimate is None:
            said = estimate_launch(self.probes, self.bounds)
            lowest = min((probe.rate for probe in self.probes), default=math.inf)
            if self.hopeless:
                said = replace(said, ceiling="floor", rate=None)
            elif said.ceiling == "floor" and lowest > LEAST_RATE:
                doubt = "no rate met before the time of the launch was used"
                doubts = (*said.doubts, f"{doubt} (--start, --launch-time)")
                said = replace(said, ceiling=None, doubts=doubts)
            self._estimate = said
        return self._estimate

    @property
    def room(self) -> tuple[int, int] | None:
        """The replicas of the newest miss and their most, of an app that Serve scales.

        Where there was room for more: Serve may take longer to decide than a probe lasts."""
        pairs = zip(self.trials, self.probes, strict=True)
        missed = [pair for pair in pairs if pair[1].steady and not meets(pair[1], self.bounds)]
        if not missed or missed[-1][1].replicas is None:
            return None
        limits = [limit for limit in missed[-1][0].limits.values() if limit.ran]
        most = sum(max(limit.ran[-1], limit.most or 0) for limit in limits)
        return (missed[-1][1].replicas, most) if missed[-1][1].replicas < most else None

    @property
    def expected_left_s(self) -> float:
        """Expected measured seconds until its end."""
        return self.search.expected_left_s if self.closed is not None else self.asked.launch_s

    def _planned(self, row: Row) -> PlannedTrial:
        return plan_trial(self.variant, self.round, self.cell, row)


MOST_FAILED: Final = 3
"""Probes in a row without any figure, after which a launch is given up."""

HOPELESS: Final = 0.5
"""Requests beyond a bound, as a share: more than a few bursts make."""

LEFT: Final = 0.01
"""Requests without an answer, as a share of the sent ones: with more the load may be too much."""

IN_FLIGHT: Final = 4.0
LEAST_CONNECTIONS: Final = 20
MOST_CONNECTIONS: Final = 4000
"""Of a probe. At the boundary of a percentile most requests take far less than the limit; with four
times as many in flight as if each took it, the SLO is missed by far, and more connections show
nothing more."""

LEAST_LIMIT_S: Final = 0.1
"""Of an SLO with a shorter time: connections and the wait for the last answers."""


@dataclass
class Searches:
    """All searches of a run, by variant, cell and round; those of `earlier` records continue.

    Of each round it is the search of the last launch."""

    asked: CapacitySearch
    slo: Slo
    traffic: Traffic | None = None
    front: str | None = None
    earlier: InitVar[Result | None] = None
    _searches: dict[tuple[str, str, int], LaunchSearch] = field(default_factory=dict)

    def __post_init__(self, earlier: Result | None) -> None:
        groups: dict[tuple[str, str, int], list[Trial]] = {}
        trials_before = () if earlier is None else earlier.trials
        for trial in sorted(trials_before, key=lambda trial: trial.started_at):
            place = (trial.variant, cell_slug(trial.cell), trial.round)
            groups.setdefault(place, []).append(trial)
        for (variant, _, round_), trials in sorted(groups.items(), key=lambda item: item[0][2]):
            last = [earlier for earlier in trials if earlier.launch == trials[-1].launch]
            search = self.at(variant, round_, last[0].cell)
            for trial in last:
                search.add(trial)

    def at(self, variant: str, round_: int, cell: JsonObject) -> LaunchSearch:
        """Return the search of a cell in a round, a new one if there is none."""
        slug = cell_slug(cell)
        place = (variant, slug, round_)
        if place not in self._searches:
            found = [search.estimate() for search in self.of((variant, slug)) if search.finished]
            rates = [estimate.rate for estimate in found if estimate.rate is not None]
            about = self.asked, self.slo, variant, round_, cell, self.traffic
            start = statistics.median(rates) if rates else None
            self._searches[place] = LaunchSearch(*about, start=start, front=self.front)
        return self._searches[place]

    def renew(self, variant: str, round_: int, cell: JsonObject) -> LaunchSearch:
        """Return a new search for a launch that was broken off: its records have no use."""
        self._searches.pop((variant, cell_slug(cell), round_), None)
        return self.at(variant, round_, cell)

    def of(self, place: Place) -> list[LaunchSearch]:
        """Return the searches of a place that measured a probe, by round."""
        in_order = sorted(self._searches.items(), key=lambda item: item[0][2])
        return [search for key, search in in_order if key[:2] == place and search.probes]

    @property
    def places(self) -> tuple[Place, ...]:
        """The places in the order in which their searches were begun."""
        return tuple(dict.fromkeys((variant, slug) for variant, slug, _ in self._searches))

    def finished(self, variant: str, round_: int, cell: JsonObject) -> bool:
        """Return whether a cell is searched to its end in a round."""
        search = self._searches.get((variant, cell_slug(cell), round_))
        return search is not None and search.closed is not None and search.finished

    def ended(self, place: Place) -> list[LaunchSearch]:
        """Return the launches that were searched to their end.

        Of a run that was broken off before, the last as far as it went."""
        searches = self.of(place)
        return [search for search in searches if search.finished] or searches[-1:]

    def estimates(self, place: Place) -> list[LaunchEstimate]:
        """Return the estimates of the launches that were searched to their end."""
        return [search.estimate() for search in self.ended(place)]

    def capacity(self, place: Place) -> Capacity:
        """Return the capacity of a place, over its launches."""
        return pool_launches(self.estimates(place), self.asked.precision)

    def enough(self) -> bool:
        """Return whether every place is known as closely as was asked.

        One that is only bounded, at the first rate or by the client, is no closer after more
        launches, and one whose service does not answer is no better."""
        for place in self.places:
            estimates = self.estimates(place)
            if any(search.given_up for key, search in self._searches.items() if key[:2] == place):
                continue
            if estimates and all(estimate.ceiling is not None for estimate in estimates):
                continue
            if not is_enough(estimates, self.asked.precision, self.asked.launches):
                return False
        return bool(self.places)
