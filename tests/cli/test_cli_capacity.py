"""`serve-bench capacity` against queues behind real sockets, whose capacity theory knows.

The intervals of these short searches are wide. `scripts/bench capacity` has the coverage of whole
ones.
"""

import math
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.capacity_runs import StoredCapacity
from tests.cases import Call, sure
from tests.integration.conftest import run_to_end, start, wait_for_line
from tests.queue_server import EVENTS, MU

pytestmark = pytest.mark.alone

SHORT = ("--launches", "1", "--launch-time", "20s")


@contextmanager
def queue(kind: str, path: str = "") -> Iterator[str]:
    """Start a queue of tests/queue_server.py; return its URL as a target."""
    command = [sys.executable, "-m", "tests.queue_server", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield f"{kind}=http://127.0.0.1:{sure(server.stdout).readline().strip()}/{path}"
        finally:
            server.kill()


def check_theory(found: StoredCapacity, rate: float) -> None:
    """Assert that theory lies within the run's interval, twice as wide on either side (ln(rate)).

    The interval is one that a report names a capacity with: half of it at most (lens.WIDE). The
    objectives are of p90: a launch of 20 s has ten times as many requests beyond it as beyond p99.
    Of 2,000 simulated launches of 20 s of M/M/1 (1,000/s, p90 <= 10 ms) two were farther off, and
    none had an interval wider than 0.38; with p99 <= 20 ms, which is the same rate, 5 % were.
    """
    figure = found.figures["capacity"]
    low, middle, high = figure["low"], figure["value"], figure["high"]
    assert low < middle < high
    assert low * low / middle <= rate <= high * high / middle, figure
    assert high - low <= 0.5 * middle, figure
    assert "met" in found.words


def read_stored(folder: Path) -> StoredCapacity:
    done = run_to_end(["report", str(folder), "--format", "json"], folder.parent)
    assert done.returncode == 0, done.stderr
    return StoredCapacity(done.stdout)


def search(folder: Path, url: str, slo: str, *words: str) -> StoredCapacity:
    done = run_to_end(["capacity", "--slo", slo, "--url", url, *words, "--out", "r"], folder)
    assert done.returncode == 0, done.stderr
    return read_stored(folder / "r")


def test_a_queue_has_about_the_capacity_of_theory(tmp_path: Path, call: Call) -> None:
    """M/M/1, 1,000/s: p90 is 10 ms at 769.7/s. --need has its exit code."""
    words = ("--need", "5000/s", "--out", "r", "--format", "json")
    with queue("mm1") as url:
        line = ["capacity", "--slo", "p90=10ms", "--url", url, *SHORT, *words]
        done = run_to_end(line, tmp_path)
    assert done.returncode == 3, done.stderr
    assert "gate: 5,000 req/s: no cell is proven to hold it" in done.stderr
    found = StoredCapacity(done.stdout)
    assert "ceiling" not in found.dims and found.dims["binds"] == "p90"
    assert found.dims["needed"] != "holds"
    check_theory(found, MU + math.log(0.1) / 0.010)
    figure = found.figures["capacity"]
    assert found.loop["figures"]["throughput"]["value"] > figure["value"]
    for counts in found.requests:
        assert counts["completed"] + counts["unanswered"] + sum(counts["failed"].values()) > 0
    shown = call("report", tmp_path / "r")[0].replace("\n  ", " ")
    assert f"Capacity {figure['value']:.0f} req/s (95 %: {figure['low']:.0f} to " in shown
    _, err = call("capacity", "--resume", tmp_path / "r", "--budget", "1m", code=2)
    assert "holds a run of services" in err


@pytest.mark.long
def test_a_queue_of_streams_has_about_the_capacity_of_its_first_events(tmp_path: Path) -> None:
    """TTFT is the time in the M/M/1; a closed loop is too slow, so the first rate is given."""
    words = ("--protocol", "stream", *SHORT, "--start", "490")
    with queue("stream") as url:
        found = search(tmp_path, url, "ttft_p90=10ms,p90=400ms", *words)
    assert found.dims["binds"] == "ttft_p90"
    check_theory(found, MU + math.log(0.1) / 0.010)
    for probe, counts in zip(found.probes, found.requests, strict=True):
        assert (probe["row"]["client"], probe["row"]["protocol"]) == ("raw", "stream")
        times = [probe["figures"][f"slo_time.{name}"]["value"] for name in ("ttft_p90", "p90")]
        assert times[1] - times[0] == pytest.approx(100e6, rel=0.2)  # without the last 100 ms
        assert not counts["failed"] and not counts["unanswered"]


@pytest.mark.long
def test_a_queue_of_events_has_about_the_capacity_of_its_gaps(tmp_path: Path) -> None:
    """Each event waits in the M/M/1 anew, so each gap, and TTFT, is a time in it.

    The rate is that of events, of which a request has 5 (arrival theorem of product-form networks):
    ITL p90 is 10 ms at 153.9 requests/s. Of 200 simulated launches of 120 s none was farther off.
    """
    words = ("--launches", "1", "--launch-time", "120s", "--protocol", "stream")
    with queue("chain") as url:
        found = search(tmp_path, url, "itl_p90=10ms,ttft_p90=12ms", *words)
    assert found.dims["binds"] == "itl_p90"
    check_theory(found, (MU + math.log(0.1) / 0.010) / EVENTS)


@pytest.mark.long
def test_a_cliff_behind_grpc_is_where_it_refuses_one_in_a_hundred(tmp_path: Path) -> None:
    """A bucket of 400/s refuses 1 % at 383.6/s (scripts/bench capacity, 500 simulated launches)."""
    with queue("grpc", "test.Queue/Call") as url:
        found = search(tmp_path, url, "p99=1s", "--protocol", "grpc", *SHORT, "--body", "hello")
    assert (found.dims["binds"], found.loop["row"]["protocol"]) == ("errors", "grpc")
    check_theory(found, 383.6)
    for probe, counts in zip(found.probes, found.requests, strict=True):
        assert not counts["unanswered"] and set(counts["failed"]) <= {"rejected"}
        assert (probe["figures"]["slo_share.errors"]["value"] > 0) == bool(counts["failed"])


@pytest.mark.long
def test_a_cliff_is_one_and_what_fails_beyond_it_is_named(tmp_path: Path) -> None:
    """Above 800/s requests are refused; late sends up to there are no limit of the client."""
    with queue("cliff") as url:
        found = search(tmp_path, url, "p99=50ms,errors=1%", *SHORT)
    assert found.dims["binds"] == "errors"
    rate = found.figures.get("capacity") or found.figures["missed_from"]
    assert 700 < rate["value"] < 900
    assert set(found.words) == {"met", "missed"}
    pairs = zip(found.words, found.requests, strict=True)
    assert all(counts["failed"].get("rejected") for word, counts in pairs if word == "missed")


@pytest.mark.long
def test_an_slo_that_no_rate_meets_is_said_with_the_latency_of_the_lowest(tmp_path: Path) -> None:
    """Each answer takes 500 ms: no launch after the first, exit code 3."""
    with queue("slow") as url:
        words = ["--url", url, "--launch-time", "20s", "--out", "r"]
        done = run_to_end(["capacity", "--slo", "p99=20ms", *words], tmp_path)
    assert done.returncode == 3, done.stderr
    text = done.stdout.replace("\n  ", " ")
    assert re.match(r"No capacity: no rate down to [\d.]+ req/s meets p99 <= 20 ms", text), text
    assert re.search(r"there p99 is [\d.]+ ms", text) and "1 search" in text
    assert "gate: no capacity" in done.stderr


@pytest.mark.long
def test_ctrl_c_keeps_the_probes_and_shows_the_bracket(tmp_path: Path) -> None:
    with queue("mm1") as url:
        words = ("--url", url, "--out", "r", "--start", "500")
        run = start("capacity", "--slo", "p99=20ms", *words, cwd=tmp_path)
        wait_for_line(run, r"probe 2 \(raw\)")
        run.send_signal(signal.SIGINT)
        rest, _ = run.communicate(timeout=60)
    assert run.returncode == 130, rest
    assert re.search(r"Capacity (at least|below|\d)", rest), rest
    assert "interrupted; what is recorded is shown" in rest
    judged = read_stored(tmp_path / "r").words
    assert judged[:2] == ["met", "met"] and len(judged) in (2, 3)


def test_a_service_that_is_not_there(tmp_path: Path) -> None:
    arguments = ["capacity", "--slo", "p99=20ms", "--url", "gone=http://127.0.0.1:1/", "--out", "r"]
    done = run_to_end(arguments, tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("connection refused") == 1
    assert "Nothing was measured: there is no capacity." in done.stdout


@pytest.mark.long
def test_a_service_that_dies_in_a_probe(tmp_path: Path) -> None:
    with queue("mm1") as url:
        words = ("--url", url, *SHORT, "--out", "r")
        run = start("capacity", "--slo", "p99=20ms", *words, cwd=tmp_path)
        wait_for_line(run, r"probe 1 \(raw\)")
    rest, _ = run.communicate(timeout=90)
    assert run.returncode == 1, rest
    assert "connection refused" in rest
    assert len(read_stored(tmp_path / "r").probes) == 1
