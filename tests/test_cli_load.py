"""`serve-bench load` as a command: flags, bad input, exit codes. Servers with known answers."""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serve_bench.cli import run
from serve_bench.store import read
from tests.servers import serving

BAD = [
    ("ftp://x/", "url: unknown scheme 'ftp'"),
    ("http://h:0/", "port 0"),
    ("http://h/ -c 0", "connections must be 1 or more"),
    ("http://h/ -r 0", "rate must be a number above 0"),
    ("http://h/ -r -5", "rate must be a number above 0"),
    ("http://h/ -c 10 -n 5", "count must be at least the number of connections (10), got 5"),
    ("http://h/ -n 50 -d 5s", "-n: give a number of requests or a duration"),
    ("http://h/ -d 0s", "-d: '0s' is not allowed; it takes a time above 0"),
    ("http://h/ -d 5x", "-d: '5x' is not allowed"),
    ("http://h/ --stages 100", "--stages: '100' is not allowed; it takes RATE:DURATION"),
    ("http://h/ --stages a:1s", "--stages: 'a:1s' is not allowed"),
    ("http://h/ --stages 5:1s -d 5s", "-d: stages have durations of their own"),
    ("http://h/ --ramp", "ramp needs stages"),
    ("http://h/ --body @nosuch", "--body: nosuch cannot be read: no such file"),
    ("http://h/ --header x", "--header: 'x' is not allowed; it takes 'Name: value'"),
    ("http://h/ --expect-status ok", "--expect-status: 'ok' is not allowed"),
    ("http://h/ --draw best", "--draw: 'best' is not allowed; it takes cycle or random"),
    ("http://h/ --client oha", "client must be one of raw, aiohttp, wrk, ab"),
    ("http://h/ --client wrk -r 5", "client wrk has no open loop"),
    ("http://h/ --arrivals x", "arrivals must be one of constant, poisson"),
    ("http://h/ --spin", "spin is for an open loop"),
    ("http://h/ --timeout 0s", "--timeout: '0s' is not allowed"),
    ("http://h/ --hgrm .", "--hgrm: . is a folder; it takes a file"),
]


@pytest.mark.parametrize(("line", "message"), BAD, ids=[line for line, _ in BAD])
def test_bad_input_is_one_line_and_exit_code_2(
    line: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["load", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert message in err and err.count("\n") == 1 and out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_load_prints_its_summary_and_keeps_its_records(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with serving() as server:
        code = run(["load", server.url, "-c", "4", "-n", "200", "--out", str(tmp_path / "run")])
    shown = capsys.readouterr().out
    assert code == 0
    assert "200 requests in" in shown and "200 sent = 200 completed + 0 failed" in shown
    (trial,) = read(tmp_path / "run").trials
    assert trial.counts.completed == 200
    assert trial.usage is not None and trial.usage["host"]["cores"] >= 1
    assert (tmp_path / "run" / "samples.jsonl").exists()
    assert run(["report", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == shown


def test_json_and_hgrm(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hgrm = tmp_path / "out.hgrm"
    with serving() as server:
        arguments = ["load", server.url, "-n", "20", "-c", "2", "--json", "--hgrm", str(hgrm)]
        assert run([*arguments, "--out", str(tmp_path / "run")]) == 0
    assert json.loads(capsys.readouterr().out)
    assert "Total count    =           20" in hgrm.read_text()


@pytest.mark.parametrize("client", ["raw", "aiohttp"])
def test_no_success_is_exit_code_1(
    client: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with serving() as server:
        arguments = ["load", server.url, "-n", "20", "-c", "2", "--client", client]
        arguments += ["--expect-status", "204", "--out", str(tmp_path / "run")]
        assert run(arguments) == 1
    assert "errors       status 20" in capsys.readouterr().out


def test_what_cannot_be_reached_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert run(["load", f"http://127.0.0.1:{port}/", "--out", str(tmp_path / "a")]) == 1
    err = capsys.readouterr().err
    assert f"connect: 127.0.0.1:{port}:" in err and "refused" in err.lower()
    assert run(["load", "http://no.such.host.invalid/", "--out", str(tmp_path / "b")]) == 1
    assert "no.such.host.invalid" in capsys.readouterr().err
    assert read(tmp_path / "a").failures[0].what == "trial"


def test_tls_that_cannot_be_trusted_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with serving() as server:
        url = server.url.replace("http://", "https://")
        arguments = ["load", url, "--connect-timeout", "500ms", "--out", str(tmp_path / "a")]
        assert run(arguments) == 1
    err = capsys.readouterr().err
    assert "connect:" in err and err.count("\n") == 1


def test_too_few_descriptors_are_named(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from serve_bench.cli import run\n"
        "sys.exit(run(sys.argv[1:]))"
    )
    with serving() as server:
        done = subprocess.run(
            [sys.executable, "-c", code, "load", server.url, "-c", "200", "-n", "200"],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
    assert done.returncode in (1, 2)
    assert "ulimit -Hn" in done.stderr and done.stderr.count("\n") == 1
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64


@pytest.mark.external
@pytest.mark.parametrize("client", ["wrk", "ab"])
def test_another_program_as_a_cross_check(
    client: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with serving() as server:
        arguments = ["load", server.url, "-c", "2", "--client", client, "-d", "1s"]
        assert run([*arguments, "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert f"client {client}, closed loop" in shown
    assert "another program drove the load" in shown


def test_ctrl_c_prints_what_was_measured_until_then(tmp_path: Path) -> None:
    with serving() as server:
        process = subprocess.Popen(
            [sys.executable, "-m", "serve_bench", "load", server.url, "-d", "30s", "-c", "2"],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "interrupted: the figures end there" in err
    assert "requests/s" in out and " completed + 0 failed" in out
    (folder,) = (tmp_path / "results").iterdir()
    (trial,) = read(folder).trials
    assert trial.flags["interrupted"] and trial.counts.completed > 0
