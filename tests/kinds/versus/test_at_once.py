"""Jobs at once: what came of each, who is heard, and that none is left behind."""

import _thread
import threading
from collections.abc import Callable

import pytest

from serve_bench.runner.sides import Job, run_at_once

Tell = Callable[[str], None]


class Broken(Exception):
    """A failure that is foreseen."""


class Bench:
    """Jobs that go on until they are stopped, and what was heard of them."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.heard: list[tuple[int, str, str]] = []
        self.stops = 0

    def hear(self, place: int, words: str) -> None:
        self.heard.append((place, words, threading.current_thread().name))

    def stop(self) -> None:
        self.stops += 1
        self.over.set()

    def lasting(self, tell: Tell) -> str:
        tell("begun")
        if not self.over.wait(20):
            raise AssertionError("nobody stopped it")
        raise Broken("stopped")

    def run(self, *jobs: Job[str], all_or_none: bool = False) -> list[object]:
        return list(run_at_once(jobs, self.hear, self.stop, Broken, all_or_none=all_or_none))


def broken(tell: Tell) -> str:
    raise Broken("of itself")


def test_both_go_on_at_the_same_time_and_only_the_one_that_asked_hears() -> None:
    bench, meet = Bench(), threading.Barrier(2, timeout=20)

    def work(name: str) -> Job[str]:
        def do(tell: Tell) -> str:
            meet.wait()  # one after the other, they would never meet
            tell(f"{name} 1")
            tell(f"{name} 2")
            return name

        return do

    assert bench.run(work("a"), work("b")) == ["a", "b"]
    me = threading.current_thread().name
    assert [line for line in bench.heard if line[0] == 0] == [(0, "a 1", me), (0, "a 2", me)]
    assert sorted(bench.heard)[2:] == [(1, "b 1", me), (1, "b 2", me)]
    assert bench.stops == 0


def test_a_failure_leaves_the_other_alone_unless_it_is_all_or_none() -> None:
    bench = Bench()
    failed, result = bench.run(broken, lambda tell: "b")
    assert isinstance(failed, Broken) and result == "b" and bench.stops == 0
    none, failed = bench.run(bench.lasting, broken, all_or_none=True)
    assert none is None and str(failed) == "of itself" and bench.stops == 1


def test_what_is_not_foreseen_stops_all_and_is_raised() -> None:
    bench = Bench()

    def wrong(tell: Tell) -> str:
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        bench.run(bench.lasting, wrong)
    assert bench.stops == 1 and threading.active_count() == 1


def test_ctrl_c_stops_all_and_is_raised() -> None:
    bench, heard = Bench(), threading.Event()
    bench.hear = lambda place, words: heard.set()  # type: ignore[method-assign]

    def interrupting(tell: Tell) -> str:
        tell("begun")
        assert heard.wait(20)  # so that it comes while both are waited for
        _thread.interrupt_main()
        return bench.lasting(tell)

    with pytest.raises(KeyboardInterrupt):
        bench.run(bench.lasting, interrupting)
    assert bench.stops == 1 and threading.active_count() == 1
