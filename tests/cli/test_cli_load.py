import json
import os
import re
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from serve_bench.benchmarks.load.experiment import left_s
from serve_bench.core.load_result import Progress
from serve_bench.runner import service
from serve_bench.store import read
from tests.cases import Call, Patch, cases, sure
from tests.places import begin, wait_until
from tests.servers import serving

pytestmark = pytest.mark.process


@cases("draw", "cycle", "random")
def test_requests_of_a_file_are_asked_for(draw: str, tmp_path: Path, call: Call) -> None:
    put = b'{"path": "/r?u=2", "method": "put", "headers": {"X-A": "1"}, "body": {"n": 1}}'
    put = b"\xef\xbb\xbf# users\nGET /r?u=1\r\n\n  " + put + b"  \n#/no\nGET /r?u=3"
    (tmp_path / "list").write_bytes(put)
    with serving() as server:
        words = ("load", server.url, "-c", "1", "-n", "60", "--requests-file")
        call(*words, tmp_path / "list", "--draw", draw, "--out", tmp_path / "run")
        call("load", server.url + "own?x", *words[-1:], tmp_path / "list", code=2)
    asked = [exchange.head.split(b" ", 2)[1] for exchange in server.log]
    cycled = [b"/r?u=1", b"/r?u=2", b"/r?u=3"] * 20
    assert set(asked) == set(cycled) and (asked == cycled) == (draw == "cycle") and len(asked) == 60
    of_put = {(asked.method, asked.body) for asked in server.log if b"u=2" in asked.head}
    assert of_put == {("PUT", b'{"n": 1}')}


FORM = {"mimeType": "application/x-www-form-urlencoded", "params": [{"name": "a", "value": "é"}]}
IMAGE = {"mimeType": "image/png", "text": "AP8=", "encoding": "base64"}


@cases("client", "raw", "aiohttp")
def test_a_har_is_sent_as_it_was_recorded(client: str, tmp_path: Path, call: Call) -> None:
    sent = {":authority": "h", "Host": "h", "Cookie": "s=secret1", "cookie": "t=2", "X-B": "old"}
    headers = [{"name": name, "value": value} for name, value in sent.items()]
    with serving() as server:
        requests: list[dict[str, Any]] = [
            {"method": "GET", "url": f"{server.url}a?b=1#c", "headers": headers},
            {"method": "POST", "url": "https://other.test/", "postData": {"params": [{}]}},
            {"method": "POST", "url": f"{server.url}form", "postData": FORM},
            {"method": "PUT", "url": server.url, "postData": IMAGE},
            {"method": "HEAD", "url": server.url},
            {"method": "POST", "url": server.url, "postData": {**FORM, "mimeType": "multipart/x"}},
            {"method": "POST", "url": server.url, "postData": {**IMAGE, "text": "A"}},
            {"method": "POST", "url": server.url, "postData": {"text": "\ud800"}},
        ]
        har = {"log": {"entries": [{"request": request} for request in requests]}}
        (tmp_path / "shop.HAR").write_text(json.dumps(har))
        words = f"load {server.url} -c 1 -n 3 --client {client} --out {tmp_path}/run -H x-b:new"
        _, err = call(*words.split(), "--requests-file", tmp_path / "shop.HAR")
    left = "left out: 1 to other.test:443, 1 by HEAD, which does not go with other methods, 3 that"
    assert f"requests are {left} cannot be sent (log.entries[5]: postData: multipart/x" in err
    bodies, (get, *_) = [(asked.method, asked.body) for asked in server.log], server.log
    assert bodies == [("GET", b""), ("POST", b"a=%C3%A9"), ("PUT", b"\0\xff")]
    assert b"GET /a?b=1 HTTP" in get.head and b"cookie: s=secret1; t=2\r\n" in get.head.lower()
    assert b"new\r\n" in get.head and b"old" not in get.head and b"authority" not in get.head
    assert "secret1" not in (tmp_path / "run" / "records.jsonl").read_text()


def test_the_account_of_requests_is_shown_and_kept(call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with serving() as server:
        words = ("load", server.url, "-n", "20", "-c", "2", "-X", "put", "--body")
        shown, _ = call(*words, os.fsdecode(b"\xff\x80"), "--out", folder)
    assert "20 sent = 20 completed + 0 failed" in shown and call("report", folder)[0] == shown
    assert (server.log[0].body, server.log[0].method) == (b"\xff\x80", "PUT")
    (kept,) = read(folder).trials
    assert sure(kept.usage.host.cores) >= 1 and (folder / "samples.jsonl").exists()
    (row,) = json.loads(call("report", folder, "--format", "json")[0])["rows"]
    (trial,) = row["trials"].values()
    account = trial["requests"]
    within, flying = account.pop("in_windows"), account.pop("mean_in_flight")
    assert (within["completed"], within["in_flight"]) == (20, 0)
    assert flying is None or 0 < flying <= 2  # too short to tell, unless the host was busy
    assert account.pop("failed") == {} and account.pop("status_codes") == {"200": 20}
    assert account.pop("sent") == account.pop("completed") == 20
    assert account == dict.fromkeys(("carried_in", "in_flight", "not_sent", "unanswered"), 0)
    figures = {name: known["value"] for name, known in row["figures"].items()}
    p50, p75, p99_9, most = (figures[f"latency_{of}"] for of in ("p50", "p75", "p99_9", "max"))
    assert p50 <= p75 <= p99_9 <= most * 1.001
    assert trial["windows"]["throughput"] == [figures["throughput"]]


@cases("client", "raw", "aiohttp")
def test_no_success(client: str, call: Call, tmp_path: Path) -> None:
    with serving() as server:
        words = ("load", server.url, "-n", "20", "-c", "2", "--client", client, "-f", "json")
        out, err = call(*words, "--expect-status", "204", "--out", tmp_path / "run", code=1)
    assert json.loads(out)["rows"] and "errors: 20" in call("report", tmp_path / "run")[0]
    said = f"trial failed (url {server.url}, 2 c", ": no request succeeded: 20 with status 200 ("
    assert [err.count(part) for part in (*said, "incomplete; what is recorded is shown")] == [1] * 3


@cases("bad, code", (1, 0), (2, 1))
def test_failures_above_1_percent_exit_1(bad: int, code: int, call: Call, tmp_path: Path) -> None:
    with serving(lambda number: "error500" if number < bad else "ok") as server:
        words = ("load", server.url, "-n", "100", "-c", "1", "--out", tmp_path / "run")
        _, err = call(*words, code=code)
    (trial,) = read(tmp_path / "run").trials
    assert trial.counts.failed_total == bad
    said = "serve-bench: 2 % of the requests failed, more than 1 %: 2 with status 500 (such as: "
    assert (said in err) == bool(code)


@cases("accepted, code", ((), 1), (("--allow-late",), 0))
def test_too_few_connections_for_the_rate_are_exit_code_1(
    accepted: tuple[str, ...], code: int, call: Call, tmp_path: Path
) -> None:
    """2 connections and 100 ms a response give 20/s."""
    with serving(delay_s=0.1) as server:
        words = ("load", server.url, "-c", "2", "-r", "60", "-d", "1s", "--warmup", "0.1")
        out, err = call(*words, *accepted, "--out", tmp_path / "run", code=code)
    words_said = r"(\S+) of \S+ requests/s could be sent: all 2 connections"
    said = re.search(words_said, " ".join(out.split()))
    took_s = (server.log[-1].received_ns - server.log[0].received_ns) / 1e9
    served = (len(server.log) - 2) / took_s  # fewer, where the host keeps the server waiting
    assert said is not None and float(said[1]) == pytest.approx(served, rel=0.25) and served <= 20.5
    assert ("--allow-late accepts that" in err) == bool(code)


@cases("there", False, True)
def test_an_unreachable_host(there: bool, tmp_path: Path, monkeypatch: Patch, call: Call) -> None:
    monkeypatch.chdir(tmp_path)
    if there:
        (tmp_path / "results").mkdir()
    _, err = call("load", "http://127.0.0.1:1/", code=1)
    assert "connect: 127.0.0.1:1:" in err and "refused" in err.lower()
    assert "no.such.host.invalid" in call("load", "http://no.such.host.invalid/", code=1)[1]
    assert [file.name for file in tmp_path.rglob("*")] == (["results"] if there else [])


def test_what_cannot_be_recorded(call: Call, tmp_path: Path) -> None:
    """As on a disk that fills up while the load runs: the records file may not grow any more."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size: list[int] = []

    def fill_up(number: int) -> str:
        if number == 50:
            size.append((tmp_path / "run" / "records.jsonl").stat().st_size)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size[0], limits[1]))
        return "error500"

    try:
        with serving(fill_up) as server:
            words = ("load", server.url, "-n", "100", "-c", "2", "--no-sample")
            out, err = call(*words, "--out", tmp_path / "run", code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "100 sent = 0 completed + 100 failed" in out and "no request succeeded: 100 " in out
    assert "records.jsonl: cannot write: file too large" in err and "[1/1] url http" in err
    assert (tmp_path / "run" / "records.jsonl").stat().st_size == size[0]


def test_a_count_tells_the_time_left_by_its_rate() -> None:
    now = Progress("measure", 3.0, 7.0, 100.0, completed=50, failed=10)
    states = (now, replace(now, rate=0.0), replace(now, phase="connect"))
    assert [left_s(state, 1260) for state in states] == [12.0, None, None]
    assert left_s(now, None) == now.remaining_s


@cases(
    "words, says",
    ("-c 2 -n 500", "2 connections (raw), 500 requests; about 2 s in all at 500 requests/s"),
    ("-c 2 -n 9 -r 3", "2 connections (raw), 9 requests, 3 requests/s; about 4 s in all"),
    ("-r 9 --slo p99=1s", "10 connections (raw), 9 requests/s; about 12 s in all\nslo: p99 <= 1"),
    ("--stages 5:3s,9:4s", "10 connections (raw), stages 5:3s,9:4s; about 9 s in all"),
)
def test_the_plan_of_a_load_sends_nothing(words: str, says: str, call: Call) -> None:
    out, err = call("load", "http://127.0.0.1:1/?key=secret", *words.split(), "--dry-run")
    assert out.startswith(f"url: http://127.0.0.1:1/?key=sha256:2bb80d53\n{says}") and err == ""


def start_load(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return begin(sys.executable, "-m", "serve_bench", "load", *words, cwd=cwd)


def test_ctrl_c_prints_what_was_measured_until_then(tmp_path: Path) -> None:
    with serving() as server:
        process = start_load(server.url, "-c", "2", "-d", "30s", "--warmup", "0s", cwd=tmp_path)
        # Measuring begins a tenth of a second after the first request.
        log = server.log
        wait_until(lambda: len(log) > 1 and log[-1].received_ns - log[0].received_ns > 1.5e9)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; what is recorded is shown" in err
    assert out.startswith("The run was interrupted after ") and " completed + 0 failed" in out
    (folder,) = (tmp_path / "results").iterdir()
    (trial,) = read(folder).trials
    assert trial.flags.interrupted and trial.counts.completed > 0
    assert read(folder).failures[0].message.startswith("interrupted after ")


@cases("client", "raw", "aiohttp")
def test_nothing_is_left_of_a_load_whose_command_was_killed(client: str, tmp_path: Path) -> None:
    with serving() as server:
        process = start_load(server.url, "--client", client, "-d", "30s", cwd=tmp_path)
        try:
            wait_until(lambda: len(server.log) > 50)
            started = psutil.Process(process.pid).children(recursive=True)
            assert len(started) >= 2  # a worker and the warden
        finally:
            process.kill()
            process.wait()
        assert psutil.wait_procs(started, timeout=10)[1] == []


def test_sigterm_while_the_warm_up_lasts_is_one_line(tmp_path: Path) -> None:
    with serving() as server:
        process = start_load(server.url, "--warmup", "30s", cwd=tmp_path)
        wait_until(lambda: len(server.log) > 50)
        process.terminate()
        process.terminate()
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    said = [line for line in err.splitlines() if not re.search(r" \| | of dead run ", line)]
    assert said == ["interrupted; nothing was measured"]
    assert not [*tmp_path.iterdir()]


def test_no_serve_behind_a_unix_socket(tmp_path: Path, monkeypatch: Patch, call: Call) -> None:
    monkeypatch.setattr(service, "behind", behind := Mock(return_value=[]))
    url, path = "http://localhost:8000/", str(tmp_path / "app.sock")
    with serving(unix_path=path):
        call("load", url, "--unix-socket", path, "-n", "5", "-c", "1", "--out", tmp_path / "r")
    behind.assert_called_once_with(url, path)
