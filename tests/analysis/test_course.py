from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.analysis import course
from serve_bench.analysis.capacity.launch import slices_of
from serve_bench.core.errors import FormatError
from serve_bench.core.facts import CourseFacts, ProbeSlices
from serve_bench.core.histogram import Histogram
from serve_bench.core.schema import built
from serve_bench.core.slo import parse_slo
from serve_bench.core.usage import Track
from tests.cases import cases

S = 10**9
SLO = parse_slo("p99=100ms,errors=1%")

Row = tuple[int, int, int | None, int, str | None, None, int | None]


def row(due_s: float, latency_ms: float | None, error: str | None = None) -> Row:
    """Make a request of the log; one without a latency had no end."""
    due = round(due_s * S)
    latency = None if latency_ms is None else round(latency_ms * 1e6)
    sent = None if error == "unsent" else due
    return 0, due, latency, 200, error, None, sent


def test_requests_count_where_they_were_due() -> None:
    """Answers also count where they came; what had no end waits to the last second."""
    rows = [
        row(0.1, 50),
        row(0.9, 300),  # answered in second 1
        row(1.0, 2_500),  # answered behind the load
        row(1.5, 20, "status"),
        row(2.0, None, "cut"),
        row(2.5, None, "unsent"),
    ]
    kept = course.seconds_of_requests(rows, 3)
    assert kept["due"] == [2, 2, 2] and kept["sent"] == [2, 2, 1]
    assert kept["answered"] == [2, 1, 0] and kept["ended"] == [1, 1, 0]
    assert kept["waiting"] == [1, 1, 3]
    assert kept["failed"] == {"status": [0, 1, 0], "cut": [0, 0, 1], "unsent": [0, 0, 1]}
    highest = [None if second is None else second["max"] for second in kept["latency"]]
    assert highest == [300_000_000, 2_500_000_000, None]
    assert kept["lost"] == [(1.5, 1.52, "status"), (2.0, None, "cut"), (2.5, None, "unsent")]
    assert kept["latency"][2] is None


ENDS = st.sampled_from([None, "timeout", "reset"])
REQUESTS = st.tuples(st.floats(0, 4.999), st.none() | st.floats(0.001, 9_000), ENDS)


@given(st.lists(REQUESTS, max_size=40))
def test_every_request_is_in_one_second(made: list[tuple[float, float | None, str | None]]) -> None:
    """due = answered + failed in each second, and what waits is what is due and has not ended."""
    rows = [row(due, ms, error if ms is not None else "cut") for due, ms, error in made]
    kept = course.seconds_of_requests(rows, 5)
    assert sum(kept["due"]) == len(rows)
    for at in range(5):
        failed = sum(counts[at] for counts in kept["failed"].values())
        assert kept["due"][at] == kept["answered"][at] + failed
        edge = (at + 1) * S
        begun = [(due, latency) for _, due, latency, *_ in rows if due < edge]
        waiting = sum(latency is None or due + latency >= edge for due, latency in begun)
        assert kept["waiting"][at] == waiting
        kept_in = kept["latency"][at]
        count = 0 if kept_in is None else Histogram.decode(kept_in).count
        assert count == kept["answered"][at]


@given(st.integers(1, 10**11))
def test_kept_latencies_are_within_two_per_cent(value_ns: int) -> None:
    """So are the percentiles of single seconds; below 2 us a slot is as wide as 32 values."""
    kept = course.seconds_of_requests([(0, 0, value_ns, 200, None, None, 0)], 1)
    histogram = Histogram.decode(kept["latency"][0])
    slack = 16 if value_ns < 2_048 else 1
    assert histogram.percentile(0.5) == pytest.approx(value_ns, rel=0.017, abs=slack)


def bounds(*bad: int, size: int = 10) -> course.Bounds:
    """Slices of `each` requests, so many of which are slow."""
    of, none = [size] * len(bad), [0] * len(bad)
    counts = {"p99": {"of": of, "bad": [*bad]}, "errors": {"of": of, "bad": none}}
    return course.bounds_of(
        built(ProbeSlices, {"slice_s": course.STEP_S, "bounds": counts}, "slices"), SLO
    )


def change(at_s: float, name: str, running: int, wanted: int | None = None) -> dict[str, Any]:
    """Report for a deployment: so many replicas run, and so many are wanted."""
    asked = running if wanted is None else wanted
    state = {"at_s": at_s, "deployment": name, "wanted": asked, "starting": asked - running}
    return {**state, "running": running, "draining": 0}


def life(pid: int, title: str, begin: float | None, end: float | None) -> dict[str, Any]:
    role = {"ray::ProxyActor": "proxy", "haproxy": "haproxy"}.get(title, "replica")
    return {"pid": pid, "role": role, "title": title, "from_s": begin, "to_s": end}


def test_the_slo_holds_from_the_first_moment_of_three_good_seconds() -> None:
    """Two good seconds between bad ones are none; at the end of a span what is left has to do."""
    good, bad = [0] * 10, [5] * 10
    assert bounds(*bad, *good, *good, *bad, *good, *good, *good).held_from(0, 7) == 4.0
    assert bounds(*bad, *bad, *[5] * 9, 0).held_from(0, 3) is None, "one lucky slice is no second"
    assert bounds(*[5] * 14, *[0] * 36).held_from(0, 5) == pytest.approx(1.4)
    assert bounds(*bad, *bad, *bad, *good).held_from(0, 4) == 3.0
    assert bounds(*bad, *bad).held_from(0, 2) is None
    assert bounds(*good, *bad, *good).held_from(1, 3) == 2.0
    assert bounds(*good).holds(0, 10) is True and bounds(*bad).holds(0, 10) is False
    assert bounds(*good, size=0).holds(0, 10) is None
    assert bounds(*[0] * 30, size=0).held_from(0, 3) is None


def line(*wanted: tuple[float, int]) -> course.ReplicaLine:
    """Make a deployment whose replicas run as soon as they are wanted."""
    counts = (course.ReplicaCount(at, n, 0, n, 0) for at, n in wanted)
    return course.ReplicaLine("Shop", tuple(counts))


def test_turns_are_changes_of_direction() -> None:
    swings = line((-1, 1), (2, 2), (3, 4), (5, 2), (7, 3), (9, 3))
    assert swings.turns(0, 10) == 2
    assert swings.turns(0, 4) == 0 and swings.turns(4, 10) == 1
    assert line((-1, 2)).turns(0, 10) == 0
    assert swings.seconds(0, 10) == 2 * 1 + 1 * 2 + 2 * 4 + 2 * 2 + 3 * 3


def test_replicas_by_the_word_of_serve_or_by_processes() -> None:
    changes = [change(-1, "a:A", 1), change(-1, "a:B", 2), change(3, "a:A", 4)]
    total = course.add_replicas(
        course.read_replicas(built(CourseFacts, {"changes": changes}, "course"))
    )
    assert [(count.at_s, count.running) for count in total.counts] == [(-1, 3), (3, 6)]
    title = "ray::ServeReplica:a:A"
    lives = [life(1, title, None, 5.0), life(2, title, 2.0, None)]
    lives.append(life(3, "ray::ProxyActor", None, None))
    (seen,) = course.read_replicas(built(CourseFacts, {"lives": lives}, "course"))
    counts = [(count.at_s, count.wanted, count.running) for count in seen.counts]
    assert counts == [(0.0, None, 1), (2.0, None, 2), (5.0, None, 1)]


def make_course(rows: list[Row], seconds: int, **more: Any) -> CourseFacts:
    return built(CourseFacts, {**course.seconds_of_requests(rows, seconds), **more}, "course")


def test_a_fault_has_what_failed_behind_it() -> None:
    """By times of failed requests; Serve's replicas less those that died and one that stalls."""
    rows = [row(at / 10, 20) for at in range(100)]
    rows[29:31] = [row(2.9, 200, "reset"), row(3.0, 50, "reset")]
    rows[80] = row(8.0, 10, "status")
    changes = [change(-1, "a:A", 2)]
    lives = [life(pid, "ray::ServeReplica:a:A", None, end) for pid, end in ((1, 3.0), (2, None))]
    faults = [
        {"fault": "kill:replica@3s", "text": "kill a replica at 3 s", "at_s": 3.0, "pid": 1},
        {"fault": "stop:replica@6s+1s", "text": "stop", "at_s": 6.0, "done_s": 7.0, "pid": 2},
        {"fault": "deploy@9s", "text": "deploy", "at_s": None, "why_not": "the load was over"},
    ]
    content = make_course(rows, 10, changes=changes, lives=lives, faults=faults)
    slices = slices_of(rows, SLO, 10.0, course.STEP_S)
    figures = course.transient_of(content, course.bounds_of(slices, SLO), [(0.0, 10.0)])
    kill, stop, deploy = figures.faults
    assert kill["lost.reset"] == kill["lost"] == 2 and stop["lost.status"] == stop["lost"] == 1
    assert (kill["fewest"], stop["fewest"]) == (1, 0)
    assert (kill["out_s"], kill["last_out_s"]) == (1, 1.0) and deploy == {"at_s": None}
    whole = figures.whole
    assert [whole[name] for name in ("lost", "lost.reset", "lost.status", "out_s")] == [3, 2, 1, 3]
    events = [(event.at_s, event.what) for event in figures.events]
    assert events[:2] == [(3.0, "kill replica"), (3.0, "replica killed")]
    assert (7.0, "goes on") in events


@cases("stop_s, what", (5, "cut, 5 s after a reload"), (120, "before a reload ended"))
def test_requests_that_haproxy_cuts_at_its_hard_stop(stop_s: float, what: str) -> None:
    """The first of three processes ends 5 s after the reload at 2 s, the second by itself."""
    lives = [life(1, "haproxy", None, 7.9), life(2, "haproxy", 2.0, 4.5)]
    lives.append(life(3, "haproxy", 4.1, None))
    rows = [row(second, 1000 * (7 - second), "reset") for second in range(4)]
    slices = course.bounds_of(slices_of(rows, SLO, 10.0, course.STEP_S), SLO)
    figures = course.transient_of(make_course(rows, 10, lives=lives), slices, [(0, 10)], stop_s)
    assert figures.whole[f"lost_near.HAProxy {what}"] == 4


def test_scaling_up_and_down() -> None:
    """From 5 s on the load needs three replicas, ready at 8 s; then a fourth, and back to one."""
    rows = [row(at / 10, 20) for at in range(50)]
    rows += [row(5 + at / 30, 500 if at < 105 else 20) for at in range(300)]
    counts = [(-1, 1, 1), (6, 3, 1), (8, 3, 3), (12, 4, 4), (20, 1, 1)]
    changes = [change(at, "a:A", running, wanted) for at, wanted, running in counts]
    slices = slices_of(rows, SLO, 15.0, course.STEP_S)
    content = make_course(rows, 15, changes=changes, after_s=10.0)
    stages = [(0.0, 5.0), (5.0, 15.0)]
    figures = course.transient_of(content, course.bounds_of(slices, SLO), stages)
    first, rise = figures.stages
    assert (first["held_s"], first["needed"], first["out_s"]) == (0.0, 1, 0)
    assert (rise["further_s"], rise["needed"], rise["needed_s"]) == (3.0, 3, 3.0)
    assert rise["held_s"] == pytest.approx(3.5, abs=0.1) and rise["out_s"] == 4
    assert (rise["most_replicas"], rise["overshoot"], rise["turns"]) == (4, 1, 0)
    assert figures.whole["down_s"] == 5.0
    assert figures.whole["replica_s"] == 6 * 1 + 6 * 3 + 3 * 4
    assert figures.whole["least_s"] == 5 * 1 + 10 * 3


def test_damaged_bounds_are_refused() -> None:
    counts = {"of": [1], "bad": [0]}
    for slices, why in (
        ({}, "p99 is missing"),
        ({"bounds": {"p99": counts, "errors": {"of": [], "bad": []}}}, "same"),
        ({"bounds": {"p99": counts, "errors": counts}}, "no part"),
    ):
        with pytest.raises(FormatError, match=why):
            course.bounds_of(built(ProbeSlices, slices, "slices"), SLO)


def test_processes_by_second() -> None:
    """CPU of a role is that of all its processes; a late one has a birth, a vanished one an end."""
    ticks = range(0, 31, 2)
    first = Track(1, "proxy", "p", [(at * S // 10, at * S // 20) for at in ticks])
    late = Track(2, "replica", "r", [(at * S // 10, (at - 10) * S // 10) for at in ticks if at > 9])
    gone = Track(3, "replica", "r", [(at * S // 10, 0) for at in ticks if at < 21])
    kept = course.processes_of([first, late, gone], 0, 3)
    assert kept["cpu"] == {"proxy": [50.0] * 3, "replica": [0.0, 100.0, 100.0]}
    spans = [(life["from_s"], life["to_s"]) for life in kept["lives"]]
    assert spans == [(None, None), (1.0, None), (None, 2.0)]
