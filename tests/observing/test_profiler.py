import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from serve_bench.analysis.stacks import measure_noise, parse_raw, top_functions
from serve_bench.core.errors import BadInput
from serve_bench.observing.profiler import (
    ProfileFailed,
    Recording,
    SpyOptions,
    dump,
    explain,
    py_spy,
    record,
)
from serve_bench.serving.strays import DIRECTORY_MARK
from tests.cases import cases
from tests.places import begin

#: Burns in two functions, by their own CPU clocks: hot three parts, cool one.
TWO = """
import sys, time
def spend(ms):
    began = time.thread_time()
    while time.thread_time() - began < ms / 1e3:
        sum(range(500))
def hot(): spend(15)
def cool(): spend(5)
print("ready", flush=True)
end = time.time() + float(sys.argv[1])
while time.time() < end:
    hot(); cool()
"""
SLEEP = "import sys, time; print('ready', flush=True); time.sleep(60)"
Start = Callable[..., int]
pytestmark = [pytest.mark.ptrace, pytest.mark.alone]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def run(code: str, *arguments: str) -> int:
        process = begin(sys.executable, "-c", code, *arguments)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process.pid

    yield run
    for process in started:
        process.kill()
        process.communicate()


def only(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_a_known_share_is_found_of_two_processes(start: Start, tmp_path: Path) -> None:
    recordings = [Recording(start(TWO, "30"), tmp_path / f"{at}.raw.txt") for at in (1, 2)]
    ticks: list[float] = []
    outcome = record(recordings, 2.0, ticks.append)
    assert [done.pid for done in outcome.done] == [recording.pid for recording in recordings]
    assert not outcome.failed and not outcome.interrupted
    assert ticks == sorted(ticks) and ticks[-1] < 2.0
    for done in outcome.done:
        stacks = parse_raw(done.path.read_text(), "x")
        assert sum(stacks.values()) == done.samples > 20
        share = {top.name: top.total_percent for top in top_functions(stacks)}
        within = 10 + measure_noise(75, done.samples)  # a busy host leaves few samples
        assert share["hot (<string>)"] == pytest.approx(75, abs=within)
        assert share["cool (<string>)"] == pytest.approx(25, abs=within)
    assert only(tmp_path) == ["1.raw.txt", "2.raw.txt"]


def test_a_process_that_ends_leaves_its_samples(start: Start, tmp_path: Path) -> None:
    (done,) = record([Recording(start(TWO, "1"), tmp_path / "x.raw.txt")], 20.0).done
    assert done.samples > 0 and done.seconds < 15
    assert "ended after" in done.notes[0] and "kept what was sampled" in done.notes[0]
    # Its stacks now can be told too.
    assert "<module> (<string>:1)" in dump(start(SLEEP))
    with pytest.raises(ProfileFailed, match=r"^process 999999999 ended"):
        dump(999999999)


def test_idle_processes_and_a_late_py_spy_leave_no_file(start: Start, tmp_path: Path) -> None:
    pid = start(SLEEP)
    outcome = record([Recording(pid, tmp_path / "a" / "b" / "x.raw.txt")], 0.5)
    (failure,) = outcome.failed
    waits = "was idle: no samples on a CPU: it waits in <module> (<string>:1); put load"
    assert waits in str(failure) and "--idle" in str(failure)
    fast = Recording(start(TWO, "30"), tmp_path / "x.raw.txt", SpyOptions(rate=100_000))
    (failure,) = record([fast], 5.0).failed
    assert re.search(r"fell behind: \d+ % of the samples are missing; use a low", str(failure))
    assert only(tmp_path) == []
    (done,) = record([Recording(pid, tmp_path / "x.txt", SpyOptions(idle=True))], 0.5).done
    assert done.samples > 0


def test_one_that_fails_does_not_end_the_others(start: Start, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    pids = (gone.pid, start(TWO, "30"))
    # Stacks come to the folder at the end: it is empty when the first of them fails.
    out, mark = tmp_path / "out", {DIRECTORY_MARK: str(tmp_path)}
    outcome = record([Recording(pid, out / f"{pid}.txt", mark=mark) for pid in pids], 2.0)
    assert [recorded.pid for recorded in outcome.done] == [pids[1]]
    assert str(outcome.failed[0]) == f"process {gone.pid} ended before a sample was taken"
    assert only(out) == [f"{pids[1]}.txt"]


def test_ctrl_c_keeps_what_was_sampled(start: Start, tmp_path: Path) -> None:
    recording = Recording(start(TWO, "30"), tmp_path / "x.raw.txt")
    begun = threading.Event()

    def interrupt() -> None:
        begun.wait(20)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    outcome = record([recording], 30.0, lambda seconds: begun.set())
    thread.join()
    assert outcome.interrupted
    assert outcome.done[0].samples > 0 and outcome.done[0].seconds < 20


def test_a_recording_abandoned_or_killed_leaves_no_file(start: Start, tmp_path: Path) -> None:
    pid = start(TWO, "30")
    for killed in (False, True):
        recording = Recording(pid, tmp_path / "x.raw.txt")
        recording.start()
        assert recording.wait_ready() and recording.running
        if killed:
            os.kill(recording.py_spy_pid, signal.SIGKILL)
            with pytest.raises(ProfileFailed, match=rf"^py-spy on process {pid} was ended by"):
                recording.stop()
        else:
            recording.abandon()
        assert not recording.running and only(tmp_path) == []


def test_a_file_that_cannot_be_made_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for begin_it in (Recording.start, lambda recording: record([recording], 1.0)):
        with pytest.raises(BadInput, match="cannot be written"):
            begin_it(Recording(os.getpid(), tmp_path / "file" / "x.txt"))


def test_nothing_is_written_before_the_end_of_a_run(start: Start, tmp_path: Path) -> None:
    for name in ("out", "run"):
        (tmp_path / name).mkdir()
    mark = {DIRECTORY_MARK: str(tmp_path / "run")}
    recording = Recording(start(TWO, "30"), tmp_path / "out" / "x.raw.txt", mark=mark)
    recording.start()
    assert recording.wait_ready() and only(tmp_path / "out") == []
    time.sleep(0.5)
    assert recording.stop().samples > 0
    assert only(tmp_path / "out") == ["x.raw.txt"] and only(tmp_path / "run") == []


@cases(
    "said, means",
    ("Error: Unsupported version of Python: 3.19.0", "does not know Python 3.19.0"),
    ("Error: Failed to find python version from target process", "is not Python"),
    ("Error: something new", "py-spy on process 7 failed: something new"),
    ("", "py-spy on process 7 failed: it said nothing"),
)
def test_what_py_spy_says_becomes_one_line(said: str, means: str) -> None:
    line = explain(said, 7)
    assert means in line and "\n" not in line


def test_py_spy_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SpyOptions(50, native=True, idle=True).words() == ["--rate", "50", "--native", "--idle"]
    assert Path(py_spy()).parent == Path(sys.executable).parent
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(BadInput, match="pip install py-spy"):
        py_spy()
