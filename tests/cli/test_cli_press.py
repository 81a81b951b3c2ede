import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from serve_bench.store import read
from tests.cases import Call, sure
from tests.places import begin, wait_until
from tests.servers import every_nth, serving

pytestmark = pytest.mark.process


def test_a_line_for_each_request(tmp_path: Path, call: Call) -> None:
    with serving() as good, serving(script=every_nth(4, "error503")) as busy:
        urls = [f"--url=good={good.url}p?q=1", f"--url=busy={busy.url}"]
        flags = ["--clients", "1,3", "--requests-per-client", "8", "--samples", "2"]
        log = ["--log-requests", str(tmp_path / "all.csv")]
        command = ("press", *urls, *flags, *log, "--format", "json")
        out, _ = call(*command, "--out", tmp_path / "r")
    result = read(tmp_path / "r")
    # A step whose rate falls, as on a busy host, is measured again.
    assert [(trial.variant, trial.row.label) for trial in result.trials if trial.row.run == 1] == [
        *(("good", "1 client"), ("good", "3 clients")),
        *(("busy", "1 client"), ("busy", "3 clients")),
    ]
    for trial in result.trials:
        assert trial.counts.completed + trial.counts.failed_total == trial.row.requests
        assert set(trial.counts.failed) <= {"rejected"} and not trial.flags.cut
        assert 0 < trial.seconds.connecting < sure(trial.seconds.connect)
    by_busy = [trial for trial in result.trials if trial.variant == "busy"]
    refused = sum(trial.row.requests or 0 for trial in by_busy) // 4
    assert sum(trial.counts.failed_total for trial in by_busy) == refused >= 8
    assert all(trial.counts.failed == {} for trial in result.trials if trial.variant == "good")
    request = good.log[0]
    assert request.head.startswith(b"POST /p?q=1 ")
    body = json.loads(request.body)
    assert len(body["samples"]) == 2
    assert all(len(sample) == 2 and all(map(str, sample.values())) for sample in body["samples"])
    with (tmp_path / "all.csv").open() as file:
        lines = list(csv.DictReader(file))
    asked = {trial.key: trial.row.requests for trial in result.trials}
    assert Counter(line["trial"] for line in lines) == asked
    assert set(Counter((line["trial"], line["client"]) for line in lines).values()) == {8}
    assert sum(line["status"] == "503" and line["error"] == "rejected" for line in lines) == refused
    assert json.loads(out)["run"]["command"] == "press"


def test_a_signal_to_the_whole_group_keeps_the_row_in_hand(tmp_path: Path) -> None:
    """As from `timeout`, a batch system or a terminal that is closed."""
    with serving(delay_s=0.005) as server:
        flags = ["--clients", "2", "--requests-per-client", "100000", "--out", "r"]
        words = (sys.executable, "-m", "serve_bench", "press", f"--url=s={server.url}", *flags)
        running = begin(*words, cwd=tmp_path, start_new_session=True, stderr=subprocess.STDOUT)
        # One of the settling, two clients.
        wait_until(lambda: len({exchange.peer for exchange in list(server.log)}) == 3)
        time.sleep(0.5)
        os.killpg(running.pid, signal.SIGTERM)
        out, _ = running.communicate(timeout=30)
    assert running.returncode == 130, out
    (trial,) = read(tmp_path / "r").trials
    assert trial.flags.interrupted and 0 < trial.counts.completed < 200_000
    assert "interrupted: " in out and "not climbed to its end" in out


@pytest.mark.long
@pytest.mark.alone
def test_ladders_on_services(tmp_path: Path, call: Call) -> None:
    with serving() as good, serving(script=every_nth(2, "error500")) as bad:
        urls = [f"--url=good={good.url}", f"--url=bad={bad.url}sub"]
        flags = ["--users", "1,3", "--duration", "0.6", "-H", "X-Token: s3cret"]
        table, _ = call("recsys", *urls, *flags, "--out", tmp_path / "r")
    result = read(tmp_path / "r")
    assert [(trial.variant, trial.row.connections) for trial in result.trials] == [
        *(("good", 1), ("good", 3)),
        *(("bad", 1), ("bad", 3)),
    ]
    assert "s3cret" not in (tmp_path / "r" / "records.jsonl").read_text()
    heads = {exchange.head.split(b" ", 2)[1] for exchange in bad.log}
    assert {b"/sub?user_id=1", b"/sub?user_id=2"} <= heads and len(heads) > 50
    assert all(b"s3cret" in exchange.head for exchange in bad.log)
    assert all(trial.counts.failed == {} for trial in result.trials[:2])
    assert all(trial.counts.failed["status"] > 0 for trial in result.trials[2:])
    words = " ".join(table.split())
    assert re.search(r"good at its knee, \d users?: [^;]+; limit(ed by|) \w", words)
    assert "errors (2 of 4 rows): " in words and "with status 500" in words
    _, err = call("recsys", "--resume", tmp_path / "r", code=2)
    assert "holds a run of services, whose headers are not kept" in err


@pytest.mark.alone
def test_a_service_that_is_not_there(tmp_path: Path, call: Call) -> None:
    with serving() as good:
        urls = ["--url=gone=http://127.0.0.1:9/", f"--url=good={good.url}"]
        flags = ["--users", "2", "--duration", "0.5", "--format", "json"]
        out, _ = call("recsys", *urls, *flags, "--out", tmp_path / "r", code=1)
    page = json.loads(out)
    ladders = {point["dims"]["variant"]: point["dims"] for point in page["points"]}
    assert ladders["good"]["users"] == ladders["good"]["best_with"] == 2
    assert ladders["good"]["end"] == "the list is measured"
    assert "users" not in ladders["gone"] and "2 users come next" in ladders["gone"]["end"]
    (failure,) = read(tmp_path / "r").failures
    assert failure.variant == "gone" and failure.row is not None
    assert failure.row.connections == 2


@pytest.mark.long
@pytest.mark.alone
def test_sweep_finds_saturation(tmp_path: Path, call: Call) -> None:
    """Four requests at once, 20 ms each: 200 requests/s from 4 users on, whatever comes on top."""
    with serving(delay_s=0.02, capacity=4) as server:
        flags = ["--method", "PUT", "--users", "1,2,4,8,16", "--duration", "0.9"]
        target = f"{server.url}x?a=b"
        out, _ = call("sweep", target, *flags, "--format", "json", "--out", tmp_path / "r")
    page = json.loads(out)
    assert [row["dims"]["users"] for row in page["rows"]] == [1, 2, 4, 8, 16]
    (knee,) = page["points"]  # no collapse beside it
    assert knee["dims"]["users"] == 4
    assert {exchange.head.split(b" ", 2)[1] for exchange in server.log} == {b"/x?a=b"}
    assert {exchange.method for exchange in server.log} == {"PUT"}
    assert read(tmp_path / "r").run.command == "sweep"
