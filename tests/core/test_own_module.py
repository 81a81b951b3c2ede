"""What we start as programs of our own runs our own files, whatever lies in the current folder."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import Load
from serve_bench.core.request_spec import Request
from serve_bench.core.result import VariantUsed
from serve_bench.doctor.software import ask_interpreter
from serve_bench.load.driver import drive_load
from serve_bench.nodes.crew import NodeCrew, NodesFailed
from serve_bench.runner import model_needs
from serve_bench.serving import strays
from serve_bench.serving.launch_spec import check_interpreter
from tests.load.loads import TIMING
from tests.places import program
from tests.servers import serving


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the current folder lie modules that make this file when they are run."""
    made = tmp_path / "ran"
    (tmp_path / "serve_bench").mkdir()
    for name in ("json.py", "csv.py", "psutil.py", "serve_bench/__init__.py"):
        (tmp_path / name).write_text(f"open({str(made)!r}, 'w').close()\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    return made


def _warden() -> None:
    run_id = strays.new_run()
    warden = strays.start_warden(run_id)
    assert warden.stdin is not None
    warden.stdin.close()
    assert warden.wait(20) == 0


def _workers() -> None:
    with serving() as server:
        load = Load(Request(server.url), connections=1, count=5)
        assert drive_load(load, TIMING).total.completed == 5


def _doctor() -> None:
    assert ask_interpreter(sys.executable).python


def _launch() -> None:
    with contextlib.suppress(BadInput):  # without Ray
        check_interpreter(VariantUsed("x", python=sys.executable))


def _torch() -> None:
    model_needs._probe.__wrapped__(sys.executable)


@pytest.mark.parametrize("start", [_warden, _workers, _doctor, _launch, _torch])
def test_nothing_of_the_current_folder_is_run(start: Callable[[], None], ran: Path) -> None:
    start()
    assert not ran.exists()


def test_the_program_of_the_nodes_runs_nothing_beside_its_log(tmp_path: Path) -> None:
    told = tmp_path / "told"
    python = program(tmp_path / "python", f'echo "$PWD $*" > {told}')
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        address = f"127.0.0.1:{cluster.getsockname()[1]}"
        crew = NodeCrew(address, "ab12cd", tmp_path / "logs" / "x.log", python=str(python))
        with pytest.raises(NodesFailed, match="ended during join"):
            crew.start()
    assert told.read_text() == "/ -u -P -m serve_bench.nodes\n"
