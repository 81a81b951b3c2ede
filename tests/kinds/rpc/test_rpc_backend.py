"""The program behind a backend of rpc, seen from outside: one that gives no answer is told why."""

import os
import signal
import sys
from pathlib import Path

import pytest

from serve_bench.benchmarks.rpc.backend import RpcBackend
from serve_bench.benchmarks.rpc.spec import RpcSpec
from serve_bench.serving.child import Child
from serve_bench.serving.server import LaunchFailed

SUITE = RpcSpec(world_size=(3,), state_size=("4-5",), master_port=0)
(WORLD,) = SUITE.worlds


def backend_with(code: str, place: Path) -> tuple[RpcBackend, Child]:
    """Make a backend whose program is a line of Python."""
    child = Child(
        [sys.executable, "-u", "-c", code],
        log=place / "log",
        cwd=place,
        env=os.environ,
        name="the rpc program",
    )
    backend = RpcBackend("torch", SUITE, "abcdef", "1", place / "log")
    backend._child = child
    return backend, child


def test_a_program_that_a_signal_has_stopped_is_not_waited_for(tmp_path: Path) -> None:
    backend, child = backend_with("import time; time.sleep(60)", tmp_path)
    try:
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(LaunchFailed) as failed:
            backend.episode()
    finally:
        child.kill()
        child.wait()
    said = f"the rpc program (pid {child.pid}) is stopped by a signal during episode"
    assert str(failed.value) == said


def test_a_program_that_ends_is_told_with_the_last_lines_of_its_log(tmp_path: Path) -> None:
    code = "import sys; input(); sys.stderr.write('UserWarning: x\\nout of memory\\n'); exit(3)"
    backend, child = backend_with(code, tmp_path)
    with pytest.raises(LaunchFailed) as failed:
        backend.world(WORLD)
    child.wait()
    assert str(failed.value) == "the rpc program ended during world (exit code 3)"
    assert failed.value.detail == ("out of memory",)
    assert not backend.alive()
