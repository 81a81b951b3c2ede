"""A load over time against a server with a known answer: times, losses, what the record keeps."""

import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from serve_bench.analysis.course import bounds_of, transient_of
from serve_bench.benchmarks.timeline import bench
from serve_bench.cli.program import run
from serve_bench.core.content import Content
from serve_bench.core.load_spec import Load
from serve_bench.core.plan import trial_of
from serve_bench.core.request_spec import Request
from serve_bench.core.result import PlannedTrial
from serve_bench.core.slo import parse_slo
from serve_bench.core.timeline import Timeline
from serve_bench.core.traffic import Row
from serve_bench.load.driver import drive_load
from serve_bench.load.request_log import RequestLog
from serve_bench.store import read
from tests.cases import Capture, Patch
from tests.places import begin
from tests.stepped_server import SteppedServer

SERVICE_S = 0.05
SLO = parse_slo("p99=700ms,errors=1%")


def course_of(server: SteppedServer, stages: str, *changes: tuple[float, int, int]) -> Any:
    """Load the server over time; `changes` of replicas: moments (s), wanted and running numbers."""
    timeline = Timeline.read(Content("a.toml", {"timeline": {"stages": stages, "connections": 50}}))
    zero: list[int] = []

    def begin(measure_ns: int) -> None:
        zero.append(measure_ns)
        server.begin(measure_ns)

    log, row = RequestLog(), Row(timeline.source, "raw", 50, loop="open")
    planned = PlannedTrial("known", 1, "url", {}, row)
    with server:
        load = bench.load_of(timeline, Load(Request(server.url)), "run", "known")
        result = drive_load(load, bench.timing_of(timeline), log=log, on_measure=begin)
    said = [
        {
            **{"at_ns": zero[0] + int(at_s * 1e9), "deployment": "default:Shop", "draining": 0},
            **{"wanted": wanted, "starting": wanted - running, "running": running},
        }
        for at_s, wanted, running in changes
    ]
    about = trial_of(planned, "", "now", result, 1.0), log, SLO, zero[0], timeline.seconds
    beside: dict[str, Any] = {"tracks": (), "readings": {"changes": said}, "faults": ()}
    trial = bench.with_course(*about, **beside, after_s=0.0, interrupted=False)
    ends = (*timeline.begins[1:], float(timeline.seconds))
    whole = [*zip(timeline.begins, ends, strict=True)]
    return trial, transient_of(trial.course, bounds_of(trial.slices, SLO), whole)


@pytest.mark.alone
def test_capacity_that_comes_at_a_known_moment() -> None:
    """One slot serves 20/s; at 2 s 40/s are due, at 4 s two further slots are there.

    The latency grows by 1 s in each second, beyond 700 ms in the first. 40 of the 80 requests stay
    in the queue of the first slot, and each that comes then is served at once: 2 s behind the begin
    of the stage.
    """
    server = SteppedServer([(0.0, 1), (4.0, 3)], SERVICE_S)
    changes = [(-1.0, 1, 1), (3.0, 3, 1), (4.0, 3, 3)]
    trial, figures = course_of(server, "10:2s,40:6s,10:2s", *changes)
    first, rise, last = figures.stages
    assert (first["out_s"], first["held_s"], last["out_s"]) == (0, 0, 0)
    assert rise["held_s"] == pytest.approx(2.0, abs=0.3)
    assert rise["further_s"] == pytest.approx(2.0, abs=0.02)
    assert (rise["needed"], rise["most_replicas"], rise["overshoot"]) == (3, 3, 0)
    assert rise["needed_s"] == pytest.approx(2.0, abs=0.02)
    assert (rise["out_s"], figures.whole["lost"]) == (2, 0)
    course = trial.course
    assert course.due == (10,) * 2 + (40,) * 6 + (10,) * 2
    assert course.answered == course.due and sum(course.sent) == sum(course.due)
    # At 4 s 40 requests wait, and some are served.
    assert course.waiting[3] == pytest.approx(40, abs=3)
    highest = max(second["max"] for second in course.latency if second is not None)
    assert highest == pytest.approx(40 * SERVICE_S * 1e9, rel=0.1)
    assert figures.whole["replica_s"] == pytest.approx(3.0 + 1 * 3 + 6 * 3, abs=0.1)


@pytest.mark.alone
def test_requests_that_are_dropped_are_lost_each_in_its_second() -> None:
    """Requests 25 to 27 and 41 of 20/s: three of the second 1, one of the second 2."""
    server = SteppedServer([(0.0, 20)], SERVICE_S, drops=(25, 26, 27, 41))
    trial, figures = course_of(server, "20:4s")
    assert server.dropped == [25, 26, 27, 41]
    assert figures.whole["lost.reset"] == figures.whole["lost"] == 4
    assert figures.whole["answered"] == 76
    assert trial.course.failed["reset"] == (0, 3, 1, 0)
    assert trial.course.answered == (20, 17, 19, 20)
    assert [error for *_, error in trial.course.lost] == ["reset"] * 4
    # 15 % and 5 % are above 1 %.
    assert figures.out == (False, True, True, False)
    assert figures.replicas.counts == () and figures.whole["replica_s"] is None


@pytest.mark.alone
def test_a_pause_has_seconds_without_a_request() -> None:
    """They are not judged, and no second of 0 ms."""
    server = SteppedServer([(0.0, 20)], SERVICE_S)
    trial, figures = course_of(server, "20:1s,0:2s,20:1s")
    assert trial.course.due == (20, 0, 0, 20)
    assert figures.out == (False, None, None, False)
    assert trial.course.latency[1:3] == (None, None)


@pytest.mark.alone
@pytest.mark.long
def test_ctrl_c_keeps_the_seconds_so_far(tmp_path: Path) -> None:
    """What was in flight then is no loss."""
    server = SteppedServer([(0.0, 1)], 1.5)  # a queue that grows: requests are in flight
    with server:
        words = ["timeline", "--url", server.url, "--stages", "5:30s", "--out", str(tmp_path / "r")]
        process = begin(sys.executable, "-m", "serve_bench", *words, "--live", "plain")
        assert process.stderr is not None
        for line in process.stderr:
            if "measure" in line:
                break
        time.sleep(3.0)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "out of the SLO" in " ".join(out.split())
    (trial,) = read(tmp_path / "r").trials
    assert trial.flags.interrupted and 3 <= len(trial.course.due) <= 12
    assert trial.course.due[:3] == (5, 5, 5)
    assert trial.course.failed == {}, err


def test_ctrl_c_in_the_warm_up(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """No load is whole by then: no trial, and no traceback."""

    def pressed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "drive_load", pressed)
    words = ["timeline", "--url", "http://127.0.0.1:1/", "--stages", "5:1s"]
    assert run([*words, "--out", str(tmp_path / "r")]) == 130
    assert "interrupted" in capsys.readouterr().err and not read(tmp_path / "r").trials
