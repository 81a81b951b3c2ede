import fcntl
import json
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import psutil
import pytest

from serve_bench.cli import progress as progress_of
from serve_bench.cli.progress import Display, load_texts
from serve_bench.core.load_result import Phase, Progress
from serve_bench.runner import service
from serve_bench.store import read
from tests.cases import cases, sure
from tests.fixtures import Call, Patch, Refuses
from tests.places import begin, wait_until
from tests.servers import serving

pytestmark = pytest.mark.process


@cases(
    "content, says",
    (b"", " holds no path; it takes one a line"),
    (b"/a\x0c\x1d/b\n/\xff", ", line 1: a space, control or non-ASCII"),
    (b"/a\n/\xff", ", line 2: a space, control or non-ASCII character"),
)
def test_bad_paths(content: bytes, says: str, refuses: Refuses, beside: Path) -> None:
    (beside / "paths").write_bytes(content)
    refuses(f"load http://h/ --paths {beside}/paths --out run", f"--paths: {beside}/paths{says}")


@cases("draw", "cycle", "random")
def test_paths_of_a_file_are_asked_for(draw: str, tmp_path: Path, call: Call) -> None:
    file = tmp_path / "paths"
    file.write_bytes(b"# users\n/r?u=1\r\n\n  /r?u=2  \n#/no\n/r?u=3")
    with serving() as server:
        words = ("load", server.url + "own", "-c", "1", "-n", "60", "--paths", file)
        call(*words, "--draw", draw, "--out", tmp_path / "run")
    asked = [exchange.head.split(b" ", 2)[1] for exchange in server.log]
    cycled = [b"/r?u=1", b"/r?u=2", b"/r?u=3"] * 20
    assert set(asked) == set(cycled) and len(asked) == 60
    assert (asked == cycled) == (draw == "cycle")


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
        words = ("load", server.url, "-n", "20", "-c", "2", "--client", client, "--json")
        out, err = call(*words, "--expect-status", "204", "--out", tmp_path / "run", code=1)
    assert json.loads(out)["rows"] and "errors: 20" in call("report", tmp_path / "run")[0]
    said = "serve-bench: no request succeeded: 20 with status 200 (such as: "
    assert err.startswith(said) and err.count("\n") == 1


@cases("bad, code", (1, 0), (2, 1))
def test_more_than_1_percent_of_failures_is_exit_code_1(
    bad: int, code: int, call: Call, tmp_path: Path
) -> None:
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
    assert said is not None and float(said[1]) == pytest.approx(20, rel=0.25)
    assert ("--allow-late accepts that" in err) == bool(code)


@cases("there", False, True)
def test_what_cannot_be_reached(
    there: bool, tmp_path: Path, monkeypatch: Patch, call: Call
) -> None:
    monkeypatch.chdir(tmp_path)
    if there:
        (tmp_path / "results").mkdir()
    _, err = call("load", "http://127.0.0.1:1/", code=1)
    assert "connect: 127.0.0.1:1:" in err and "refused" in err.lower()
    assert "no.such.host.invalid" in call("load", "http://no.such.host.invalid/", code=1)[1]
    left = [one.name for one in tmp_path.rglob("*")]  # nothing was measured
    assert left == (["results"] if there else [])


def test_what_cannot_be_recorded(call: Call, tmp_path: Path) -> None:
    """As on a disk that fills up while the load runs: the records file may not grow any more."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size: list[int] = []

    def fill_up(number: int) -> str:
        if number == 50:
            size.append((tmp_path / "run" / "records.jsonl").stat().st_size)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size[0], limits[1]))
        return "ok"

    try:
        with serving(fill_up) as server:
            words = ("load", server.url, "-n", "100", "-c", "2", "--no-sample")
            out, err = call(*words, "--out", tmp_path / "run", code=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "100 sent = 100 completed" in out
    assert "records.jsonl: cannot write: file too large" in err and err.count("\n") == 1
    assert (tmp_path / "run" / "records.jsonl").stat().st_size == size[0]


def progress(phase: Phase = "measure", **changes: float) -> Progress:
    return Progress(phase, 3.0, 7.0, **({"rate": 100.0, "completed": 50, "failed": 10} | changes))  # type: ignore[arg-type]


def test_the_live_view_fits_the_terminal_and_goes_away(monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with open(slave, "w", encoding="utf-8") as terminal:
        with Display(terminal) as display:
            display.load(progress("drain", rate=1e6, completed=10**9))
            time.sleep(0.6)  # it is drawn four times a second
        terminal.flush()
        shown = ""
        while not shown.endswith(("\x1b[2K", "\x1b[1A")):  # it hands over what it has, in parts
            shown += os.read(master, 4096).decode()
    os.close(master)
    lines = [line for line in re.split(r"\r|\n|\x1b\[[0-9?]*[A-Za-z]", shown) if line]
    figures, words = "0:07 left | 1,000,000 req/s | 10 errors", "drain | 1,000,000,000 done"
    assert lines and set(lines) <= {figures, words}


def test_the_line_goes_on_when_nobody_reads_it(monkeypatch: Patch) -> None:
    monkeypatch.setattr(progress_of, "PLAIN_EVERY_S", 0.0)
    reader, writer = os.pipe()
    pipe = os.fdopen(writer, "w")
    with Display(pipe) as display:
        display.load(progress())
        display.load(progress())
        assert b"0:07 left" in os.read(reader, 4096)
        os.close(reader)
        display.load(progress())
        display.load(progress())
    with pytest.raises(BrokenPipeError):
        pipe.close()  # its buffer still holds what could not be written


def test_a_count_tells_the_time_left_by_its_rate() -> None:
    loads = (progress(), progress(rate=0.0), progress("connect"))
    left = [load_texts(one, 1260)[0].partition(" | ")[0] for one in loads]
    assert left == ["0:12 left", "0 req/s", "100 req/s"]


def start_load(*words: str, cwd: Path) -> subprocess.Popen[str]:
    return begin(sys.executable, "-m", "serve_bench", "load", *words, cwd=cwd)


def test_ctrl_c_prints_what_was_measured_until_then(tmp_path: Path) -> None:
    with serving() as server:
        process = start_load(server.url, "-c", "2", "-d", "30s", "--warmup", "0s", cwd=tmp_path)
        # Measuring begins a tenth of a second after the first request.
        log = server.log
        wait_until(lambda: len(log) > 1 and log[-1].received_ns - log[0].received_ns > 1.5e9)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "interrupted: the figures end there" in err
    assert "requests/s" in out and " completed + 0 failed" in out
    (folder,) = (tmp_path / "results").iterdir()
    (trial,) = read(folder).trials
    assert trial.flags.interrupted and trial.counts.completed > 0
    assert [one.message for one in read(folder).failures] == ["interrupted"]


@cases("client", "raw", "aiohttp")
def test_nothing_is_left_of_a_load_whose_command_was_killed(client: str, tmp_path: Path) -> None:
    with serving() as server:
        command = [sys.executable, "-m", "serve_bench", "load", server.url, "--client", client]
        process = subprocess.Popen([*command, "-d", "30s"], cwd=tmp_path, stderr=subprocess.DEVNULL)
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
    assert err == "serve-bench: interrupted before anything was measured\n"
    (folder,) = (tmp_path / "results").iterdir()
    assert [failure.message for failure in read(folder).failures] == ["interrupted"]


def test_no_serve_behind_a_unix_socket(tmp_path: Path, monkeypatch: Patch, call: Call) -> None:
    asked: list[tuple[str | None, ...]] = []

    def behind(*where: str | None) -> list[str]:
        asked.append(where)
        return []

    monkeypatch.setattr(service, "behind", behind)
    url, path = "http://localhost:8000/", str(tmp_path / "app.sock")
    with serving(unix_path=path):
        words = ("load", url, "--unix-socket", path, "-n", "5", "-c", "1")
        call(*words, "--out", tmp_path / "r")
    assert asked == [(url, path)]
