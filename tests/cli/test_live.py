import fcntl
import io
import os
import pty
import re
import struct
import termios
import threading
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from rich.console import Console

from serve_bench.cli import progress
from serve_bench.cli.sitting import long_name, long_notice
from serve_bench.core.load_result import Progress
from serve_bench.runner.runner import Plan, RunStep
from tests import records
from tests.cases import cases

NOW = Progress("measure", 3.0, 7.0, 4552.4, 50, 0, p50_ns=20_512_000, p99_ns=139_312_000)
HEAVY = replace(NOW, rate=123_456.0, failed=12_345, p50_ns=1_204_000_000, p99_ns=12_345_000_000)


def step(load: Progress | None) -> RunStep:
    at = records.planned()
    cell = {"max_batch_size": 16, "max_ongoing_requests": 10000, "num_replicas": 8}
    return RunStep(12, 18, "optimized", 1, cell, at.row, "measure", None, 744.0, True, load)


def drawn(view: progress.LineView, width: int, height: int) -> list[str]:
    """Draw the view as rich prints it into a terminal of this size."""
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get().splitlines()


def test_rate_latency_errors_and_time_left_are_there_at_80_columns_whatever_they_are() -> None:
    for load in (NOW, HEAVY):
        figures, words = progress.step_texts(step(load))
        line = drawn(progress.LineView(figures, words), 80, 24)[0]
        assert line == figures and progress.load_figures(load) in line and "12:24 left" in line
    assert progress.load_figures(NOW) == "4,552 req/s | p50 20.5 p99 139 ms | 0 errors"
    assert progress.load_figures(HEAVY).endswith("p50 1,204 p99 12,345 ms | 12,345 errors")


def measured(rates: list[float]) -> progress.LineView:
    """Make a view after one row, a second for each rate."""
    at = iter(float(second) for second in range(1000))
    view = progress.LineView("figures", "words", clock=lambda: next(at))
    for rate in rates:
        view.load(replace(NOW, rate=rate), "row")
    return view


def test_charts_of_the_last_30_s_where_there_are_20_lines() -> None:
    view = measured([100.0 * step for step in range(1, 41)])
    assert drawn(view, 80, 19) == ["figures", "words"]
    lines = drawn(view, 80, 20)
    assert len(lines) == 2 + 1 + progress.HEIGHT
    assert lines[2].split("  ")[0] == "requests/s, most 4,000" and "p99 ms, most 139" in lines[2]
    assert all(len(line) <= 80 for line in drawn(view, 80, 24))
    assert len(view.samples) == progress.SECONDS and view.samples[0][1] == 1100.0
    title, *rows = progress.chart(
        "requests/s", [0.0, 50.0, 100.0], 22
    )  # from 0 to the highest value
    assert title == "requests/s, most 100  "
    assert [row[-3:] for row in rows] == ["  █", "  █", " ██", " ██"]
    assert progress.chart("p99 ms", [0.0, 0.0], 20)[1:] == [" " * 20] * progress.HEIGHT
    # The last state of a second counts, and another row begins anew.
    view = progress.LineView(clock=lambda: 5.2)
    for rate in (1.0, 2.0):
        view.load(replace(NOW, rate=rate), "row")
    view.load(replace(NOW, phase="drain"), "row")
    assert [sample[1] for sample in view.samples] == [2.0]
    view.load(None, "another")
    assert not view.samples


def silences(steps: list[RunStep], seconds: int = 60) -> tuple[list[int], list[str]]:
    """How long a display shows nothing while these steps come, one a second, and its lines."""
    now, shown, lines = 0.0, [0], 0
    out = io.StringIO()
    display = progress.Display(out, clock=lambda: now)
    for second in range(seconds):
        now = float(second)
        if second < len(steps):
            display.step(steps[second])
        display.tick()
        if out.getvalue().count("\n") > lines:
            lines = out.getvalue().count("\n")
            shown.append(second)
    shown.append(seconds)
    return [after - before for before, after in pairwise(shown)], out.getvalue().splitlines()


@cases("load", None, NOW, replace(NOW, phase="drain", left=3))
def test_no_step_is_silent_for_15_s_and_says_what_is_waited_for(load: Progress | None) -> None:
    look = replace(step(load), phase="look at what requests wait in")
    gaps, lines = silences([look])
    assert max(gaps) < 15
    assert re.search(r"look at what requests wait in \| for 12 s, since \d\d:\d\d:\d\d$", lines[0])
    others = [replace(look, who=f"side {number}") for number in range(60)]
    assert max(silences(others)[0]) < 15


def test_a_load_without_a_response_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = [replace(NOW, silent_s=float(second)) for second in range(30)]
    gaps, lines = silences([step(load) for load in loads], 30)
    assert gaps[0] == 5 and lines[0].endswith("no response for 5 s")
    assert max(gaps) <= 10
    ticked = threading.Event()  # a thread watches between the steps
    monkeypatch.setattr(progress.Display, "tick", lambda display: ticked.set())
    with progress.Display(io.StringIO()):
        assert ticked.wait(60)


@cases(
    "seconds, notice",
    (121.0, "note: this takes about 2 min 1 s"),
    (3_600.0, "note: this takes about 1 h 0 min"),
    (7 * 86_400.0 + 3_700, "note: this takes about 7 d 1 h"),
    (120.0, None),
    (None, None),
)
def test_a_long_run_says_so_before_it_starts(seconds: float | None, notice: str | None) -> None:
    launch: Any = object()
    assert long_notice(Plan([launch], lambda at, cell: seconds)) == notice
    assert long_notice(Plan([], lambda at, cell: 999.0)) is None
    both = ["--max-ongoing-requests", "--max-concurrent-queries"]
    assert long_name(both) == both[0]  # an option is recorded by its first long name
    assert long_name(["-c", "--connections"]) == "--connections" and long_name(["-c"]) == "-c"


def test_the_live_view_fits_the_terminal_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 40, 0, 0))
    with open(slave, "w", encoding="utf-8") as terminal:
        with progress.Display(terminal) as display:
            display.step(step(NOW))
            time.sleep(0.6)  # it is drawn four times a second
        terminal.flush()
        shown = ""
        while not shown.endswith(("\x1b[2K", "\x1b[1A")):  # it hands over what it has, in parts
            shown += os.read(master, 4096).decode()
    os.close(master)
    lines = [line for line in re.split(r"\r|\n|\x1b\[[0-9?]*[A-Za-z]", shown) if line]
    assert lines and set(lines) <= {f"{text[:39]}…" for text in progress.step_texts(step(NOW))}


def test_the_line_goes_on_when_nobody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serve_bench.cli.progress.PLAIN_EVERY_S", 0.0)
    reader, writer = os.pipe()
    pipe = os.fdopen(writer, "w")
    with progress.Display(pipe) as display:
        display.step(step(NOW))
        display.step(step(NOW))
        assert b"12:24 left" in os.read(reader, 4096)
        os.close(reader)
        display.step(step(NOW))
        display.step(step(NOW))
    with pytest.raises(BrokenPipeError):
        pipe.close()  # its buffer still holds what could not be written


def test_sides_with_long_names_are_a_and_b() -> None:
    out, trial = io.StringIO(), records.trial(records.planned())
    progress.Display(out, letters={trial.variant: "B"}).trial(trial, 2, 6)
    assert out.getvalue().startswith("[2/6] B, ")
