"""Loads of a service on a made-up clock, with fixed or drawn times and any number of slots.

The tally of the engine counts its answers; warm-up, windows and record are a load's.
"""

import random
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

import pytest

from serve_bench.analysis.checks import checks
from serve_bench.analysis.statistics import Line, LowerBound, summarize
from serve_bench.core.failed_requests import why_failed
from serve_bench.core.load_result import LoadResult
from serve_bench.core.load_spec import Client, Load, Timing
from serve_bench.core.plan import row_of, trial_of
from serve_bench.core.request_spec import Request
from serve_bench.core.result import PlannedTrial, Result, result_of
from serve_bench.load.driver import SAMPLE_S, drive_load, response_s, settling_s, stretch_note
from serve_bench.load.merge import add_times, close_account
from serve_bench.load.pacing import due_times
from serve_bench.load.tally import MEASURE, WINDOW_NS, WINDOWS, Shared, Tally
from tests.cases import cases
from tests.load.loads import CLIENTS
from tests.records import AT, run
from tests.servers import serving

QUICK = Timing(0.5, 3.0, windows=5, window_s=0.5).stretchable()
ROW = Timing(0.5, 3.0, windows=3, window_s=0.5).stretchable(quick=True)
S = 1_000_000_000


class Service:
    """A service under a load, event by event.

    `takes`: seconds of each request; `slots`: how many it works on at a time; `last_first`: whether
    the latest request is taken next.
    """

    def __init__(
        self,
        load: Load,
        takes: Callable[[], float],
        slots: int | None = None,
        last_first: bool = False,
    ) -> None:
        self.load, self.takes, self.last_first = load, takes, last_first
        self.free = load.connection_limit if slots is None else slots
        self.shared = Shared.create(1)
        self.flying: dict[int, int] = {}  # when the request of this number was due
        self.waiting: list[int] = []
        self.ends: list[tuple[int, int]] = []
        self.number = 0

    def measure(self, timing: Timing) -> LoadResult:
        load, open_loop, fitted = self.load, self.load.open_loop, timing
        self.tally = tally = Tally(
            self.shared,
            0,
            timing.windows,
            int(timing.window_s * S),
            None,
            lambda: ([*self.flying.values()], []),
        )
        dues = due_times(load.schedule) if open_loop else iter(())
        due = next(dues, None)
        for _ in range(0 if open_loop else load.connections):
            self.send(0)
        ended, sample = [0], int(SAMPLE_S * S)
        while not tally.finished or self.flying:
            now = min([at for at, _ in self.ends[:1]] + [at for at in (due,) if at is not None])
            if tally.finished and now > tally.end_ns + S * timing.drain_at_most_s(load):
                break
            while not tally.measure_known and sample <= now:
                ended.append(tally.completed)
                lasts_s = response_s(ended, None if open_loop else load.connections)
                if sample >= S * max(timing.warmup_max_s, settling_s(timing, lasts_s)):
                    if not open_loop and lasts_s is not None:
                        fitted = timing.fitted(lasts_s)
                    self.shared.words[WINDOWS] = fitted.windows
                    self.shared.words[WINDOW_NS] = int(fitted.window_s * S)
                    self.shared.words[MEASURE] = sample + 1
                sample += int(SAMPLE_S * S)
            tally.advance(now)
            if due == now:
                due = None if tally.finished else next(dues)
                if tally.may_send():
                    self.send(now)
            else:
                self.end()
        return add_times(load, close_account(load, tally, fitted.window_s), self.shared, 0)

    def send(self, now: int) -> None:
        self.tally.begun(now)
        self.flying[self.number] = now
        self.waiting.append(self.number)
        self.number += 1
        self.take(now)

    def take(self, now: int) -> None:
        while self.free and self.waiting:
            self.free -= 1
            number = self.waiting.pop(-1 if self.last_first else 0)
            heappush(self.ends, (now + int(S * self.takes()), number))

    def end(self) -> None:
        now, number = heappop(self.ends)
        due = self.flying.pop(number)
        self.free += 1
        self.tally.success(due, due, now, 200)
        self.take(now)
        if not self.load.open_loop and self.tally.may_send():
            self.send(now)


def recorded(load: Load, result: LoadResult) -> tuple[Line, Result]:
    planned = PlannedTrial("a", 1, "url", {}, row_of(load))
    records = result_of([run(planned), trial_of(planned, "", AT, result, 1.0)])
    (line,) = summarize(records)
    return line, records


def closed(connections: int) -> Load:
    return Load(Request("http://h/"), connections=connections)


@cases("connections", 1, 4, 16, 100)
@cases("takes_s", 0.05, 0.13, 0.3, 1.03, 3.0)
def test_a_closed_loop_has_the_rate_of_its_connections(takes_s: float, connections: int) -> None:
    load = closed(connections)
    result = Service(load, lambda: takes_s).measure(QUICK)
    line, run = recorded(load, result)
    assert result.window_s >= 5 * takes_s
    assert line.spreads["throughput"].value == pytest.approx(connections / takes_s, rel=0.02)
    responses = connections * result.window_s / takes_s
    assert (line.spreads["throughput"].std is not None) is (responses >= 10)
    assert not any(isinstance(at, LowerBound) for at in line.distributions["latency"].values())
    assert result.busy_s == pytest.approx(connections * result.duration_s, rel=0.001)
    found = {warning.code for warning in checks(run)}
    assert found <= {"few-samples"}
    # Whole answers stay whole, and each is in one window.
    assert sum(result.windows) == result.completed_in_windows
    assert result.measured.completed == result.latency.count


@cases("connections", 1, 4, 16, 100)
@cases("mean_s", 0.05, 0.3, 1.0)
def test_responses_of_all_lengths(mean_s: float, connections: int) -> None:
    """Ends of exponential times are those of a Poisson process; one run has few of them."""
    truth, shares, seconds = connections / mean_s, 0.0, 0.0
    for seed in range(6):
        draw = random.Random(f"{seed} {mean_s} {connections}")
        service = Service(closed(connections), partial(draw.expovariate, 1 / mean_s))
        result = service.measure(QUICK)
        shares, seconds = shares + sum(result.shares), seconds + result.duration_s
    assert abs(shares / seconds - truth) < max(0.02 * truth, 2 * (truth / seconds) ** 0.5)


@cases("takes_s", 0.05, 0.3, 1.0, 3.0)
def test_the_rate_of_an_open_loop_is_that_of_its_arrivals(takes_s: float) -> None:
    load = Load(Request("http://h/"), connections=100, max_connections=1000, rate=40.0)
    line, _ = recorded(load, Service(load, lambda: takes_s).measure(QUICK))
    assert line.spreads["throughput"].value == pytest.approx(40, rel=0.02)


def test_slots_set_the_rate_however_long_the_queue() -> None:
    result = Service(closed(100), lambda: 0.05, 5).measure(QUICK)
    assert result.window_s == pytest.approx(5.5, abs=0.15)
    assert result.rate == pytest.approx(100, rel=0.02)
    # An open loop on 4 slots of 190 ms: what is in flight when the windows end is no answer.
    load = Load(Request("http://h/"), connections=100, max_connections=1000, rate=40.0)
    result = Service(load, lambda: 0.19, 4).measure(Timing(0.5, 0.5, windows=10, window_s=1.0))
    assert result.rate == pytest.approx(4 / 0.19, rel=0.02)


def test_what_is_too_slow_for_any_window_says_what_it_needs() -> None:
    """100 connections on 5 slots at 4/s: 25 s a response, by Little's law."""
    load = closed(100)
    line, records = recorded(load, Service(load, lambda: 1.25, 5, last_first=True).measure(QUICK))
    rate, latency = line.spreads["throughput"], line.distributions["latency"]
    assert (rate.std, line.trials[0].window_s) == (None, 0.5)
    assert isinstance(latency["p99"], LowerBound)
    (found,) = (warning for warning in checks(records) if warning.code == "too-slow")
    assert found.message.startswith("a response takes ")
    assert "their latencies are lower bounds" in found.message
    assert not {"unsteady-windows", "littles-law"} & {warning.code for warning in checks(records)}


def test_a_quick_row_has_the_rate_of_its_slots_and_bounds_of_its_latency() -> None:
    """100 connections on a slot of 0.25 s: what was asked in the windows waits for 25 s."""
    service = Service(closed(100), lambda: 0.25, 1)
    line, records = recorded(service.load, service.measure(ROW))
    (trial,), p50 = line.trials, line.distributions["latency"]["p50"]
    assert not trial.counts.completed and trial.counts.in_flight == trial.completed_in_windows == 6
    assert line.spreads["throughput"].value == pytest.approx(4, rel=0.02)
    assert isinstance(p50, LowerBound) and 3e9 < p50 < 5e9 and why_failed(trial) is None
    assert "too-slow" in {warning.code for warning in checks(records)}


def test_windows_become_longer_and_fewer_and_the_warm_up_lasts_two_responses() -> None:
    asked = Timing(windows=10, window_s=1.0).stretchable()
    assert asked.fitted(0.18) == asked
    for response, shape in ((0.3, (5, 1.7)), (1.0, (3, 5.5)), (5.0, (3, 27.5)), (5.1, (10, 1.0))):
        assert (asked.fitted(response).windows, asked.fitted(response).window_s) == shape
    within = Timing(windows=10, window_s=1.0, stretched_s=10.0)  # no longer than it was asked for
    assert within.fitted(0.5).windows == 3 and within.fitted(1.0) == within
    assert Timing(windows=10, window_s=1.0).fitted(0.3).windows == 10  # fixed
    fitted = [ROW.fitted(response) for response in (0.11, 0.27, 0.32, 1.2, 1.3)]
    assert [timing.windows for timing in fitted] == [3, 3, 1, 1, 3]
    assert [timing.window_s for timing in fitted] == pytest.approx([0.5, 1.2, 1.5, 5.3, 0.5])
    assert stretch_note(asked, asked.fitted(1.0), 1.0) == (
        "a response took 1 s in the warm-up: 3 windows of 5.5 s in place of 10 of 1 s, "
        "16.5 s in place of 10 s"
    )
    assert response_s([0] * 20, 4) is None
    assert response_s([0] * 20 + [4] * 15, 4) == pytest.approx(1.0)
    assert response_s([0, 0, 1, 2, 3, 4], 100) == pytest.approx(6.25)  # a queue that fills
    assert response_s([0, 0, 1, 2, 3, 4], None) == pytest.approx(0.1)
    settling = [settling_s(QUICK, seconds) for seconds in (0.1, 3.0, 25.0, None)]
    assert settling == [0.2, 6.0, 10.0, 5.0]
    assert settling_s(ROW, None) == 1.25 and settling_s(ROW, 25.0) == ROW.warmup_max_s == 2.0
    assert [settling_s(ROW, seconds, steady=True) for seconds in (0.2, 0.8, 25)] == [0.4, 1, 1]
    assert settling_s(QUICK, 3.0, steady=True) == 6.0  # its drain awaits all
    assert settling_s(Timing(0.0, 0.0), None) == 0.0


@pytest.mark.alone
@pytest.mark.parametrize("client", CLIENTS)
def test_windows_of_a_real_load_are_stretched(client: Client) -> None:
    with serving(delay_s=0.1) as server:
        load = Load(Request(server.url), client=client, connections=4)
        result = drive_load(load, Timing(0.2, 0.3, windows=5, window_s=0.1).stretchable())
    assert len(result.windows) == len(result.shares) == 3
    assert 5 * (result.latency.mean or 0.0) < 1e9 * result.window_s
    assert result.rate * (result.latency.mean or 0.0) / 1e9 == pytest.approx(4, rel=0.02)
    assert "in place of 5 of 0.1 s" in result.stretched
    assert sum(result.windows) == result.completed_in_windows
