"""Which tests can run here. What cannot is deselected, counted, and said with its reason.

Never skipped: a skip looks like a pass. With SERVE_BENCH_NO_DESELECT=1 (continuous integration) a
deselected test fails the run. `-m` chooses a stage and counts as no deselection of ours.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from serve_bench.cli.program import run
from serve_bench.observing import host
from serve_bench.observing.profiler import why_not_allowed
from serve_bench.serving import strays

# A script that starts the tests with & has SIGINT ignored, and every process started by them would
# inherit that: the tests of Ctrl-C would wait for nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _module(name: str) -> str | None:
    return None if importlib.util.find_spec(name) else f"{name} is not installed"


def _programs(*names: str) -> str | None:
    missing = [name for name in names if shutil.which(name) is None]
    return f"{' and '.join(missing)} not on PATH" if missing else None


def _browser() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return None if any(shutil.which(name) for name in names) else "no Chromium on PATH"


def _root() -> str | None:
    return None if hasattr(os, "geteuid") and os.geteuid() == 0 else "not root"


def _netns() -> str | None:
    return _root() or _programs("ip")


def _ptrace() -> str | None:
    return why_not_allowed(os.getpid())


#: What a marker needs: a reason why it cannot be had here, or None.
NEEDS: Final[dict[str, Callable[[], str | None]]] = {
    "ray": lambda: _module("ray"),
    "external": lambda: _programs("wrk", "ab", "ss"),
    "git": lambda: _programs("git"),
    "wheel": lambda: _module("hatchling"),
    "long": lambda: None,
    "torch": lambda: _module("torch"),
    "browser": _browser,
    "netns": _netns,
    "root": _root,
    "ptrace": _ptrace,
}
ONLY_WITH_ALL: Final = frozenset({"long", "torch", "browser", "netns"})

HERE: Final = Path(__file__).parent

#: Test files whose tests all start processes, open sockets or wait.
PROCESS_FILES: Final = frozenset(
    f"{name}.py"
    for name in """load/test_client_bound load/test_drive load/test_in_turn
    load/test_open load/test_transport observing/test_profiler observing/test_sampler
    serving/test_ports serving/test_strays cli/test_cli_capacity cli/test_cli_load
    cli/test_cli_profile cli/test_cli_versus kinds/versus/test_versus_rows test_wheel""".split()
)

#: Files that look at how fast or how busy what they start is, or at all runs of this machine. Those
#: of their tests that start processes or a cluster have the machine to themselves; all others share
#: the cores, those on a real Ray two at a time.
TIMED_FILES: Final = frozenset(
    f"{name}.py"
    for name in """cli/test_cli_capacity cli/test_cli_recsys cli/test_cli_versus
    integration/test_bisect integration/test_capacity integration/test_flags integration/test_hosts
    integration/test_planted integration/test_profile integration/test_profile_nodes
    integration/test_pytest_plugin integration/test_tax integration/test_versus
    kinds/versus/test_versus_rows load/test_client_bound load/test_drive load/test_in_turn
    load/test_open observing/test_profiler observing/test_sampler""".split()
)

_deselected: Counter[str] = Counter()


def pytest_configure(config: pytest.Config) -> None:
    """asyncio of Python 3.13 raises where a transport is collected after its server, a test's, has
    ended; up to 3.12 one that is left open is an error."""
    if sys.version_info >= (3, 13):
        what = "Exception ignored in. <function _SelectorTransport.__del__"
        line = f"ignore:{what}:pytest.PytestUnraisableExceptionWarning"
        config.addinivalue_line("filterwarnings", line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="also tests that need much to be set up")


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Before `-m` chooses: the markers `process` and `alone` for the files above."""
    name = item.path.relative_to(HERE).as_posix() if item.path.is_relative_to(HERE) else ""
    if name in PROCESS_FILES:
        item.add_marker("process")
    starts = item.get_closest_marker("process") or item.get_closest_marker("ray")
    if name in TIMED_FILES and starts:
        item.add_marker("alone")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After `-m` and `-k`: take out what cannot run here, and keep count of why."""
    reasons = {name: _reason(config, name) for name in NEEDS}
    kept, gone = [], []
    for item in items:
        why = [f"{name}: {reasons[name]}" for name in NEEDS if item.get_closest_marker(name)]
        why = [text for text in why if not text.endswith(": None")]
        if why:
            gone.append(item)
            _deselected[why[0]] += 1
        else:
            kept.append(item)
    items[:] = kept
    if gone:
        config.hook.pytest_deselected(items=gone)
        if not hasattr(config, "workerinput"):
            _keep_count()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """With several processes (pytest-xdist) each collects all: the first one's count holds."""
    told = getattr(node, "workeroutput", {}).get("deselected")
    if told and not _deselected:
        _deselected.update(told)
        _keep_count()


def _reason(config: pytest.Config, name: str) -> str | None:
    if name in ONLY_WITH_ALL and not config.getoption("--all"):
        return "run by make test-all"
    return NEEDS[name]()


def _keep_count() -> None:
    """For scripts/test, which adds up several runs of pytest: one line for each test."""
    file = os.environ.get("SERVE_BENCH_DESELECTED")
    if file:
        with Path(file).open("a") as out:
            out.writelines(f"{reason}\n" for reason in _deselected.elements())


def _refused() -> bool:
    return bool(_deselected) and os.environ.get("SERVE_BENCH_NO_DESELECT") == "1"


def pytest_sessionfinish(session: pytest.Session) -> None:
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told["deselected"] = dict(_deselected)
        return
    if _refused() and session.exitstatus in (
        pytest.ExitCode.OK,
        pytest.ExitCode.NO_TESTS_COLLECTED,
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason, count in sorted(_deselected.items()):
        terminalreporter.write_line(f"deselected: {count} ({reason})")
    if _refused():
        terminalreporter.write_line("FAILED: nothing may be deselected here", red=True)


class _NoTorch(PathFinder):
    """Finds what is on the path, but no torch."""

    @classmethod
    def find_spec(
        cls,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] == "torch":
            return None
        return super().find_spec(fullname, path, target)


@pytest.fixture(autouse=True)
def _torch_only_where_marked(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process no test finds torch but those that are marked so: `make test` runs all others
    where there is none, and would fail there alone."""
    if any(request.node.get_closest_marker(name) for name in ("torch", "ray")):
        return
    finders = [_NoTorch if one is PathFinder else one for one in sys.meta_path]
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture(autouse=True)
def _quiet_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second of looking at the host before each run of a test, nor doubts by what it finds."""
    monkeypatch.setattr(host, "busy_cores", lambda: 0.0)


@pytest.fixture
def refuses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str, str], None]:
    """A command line is refused: exit code 2, one line on stderr, nothing started or written."""

    # Runs of others on this machine come and go meanwhile.
    runs = tmp_path.parent / f"{tmp_path.name}-runs"
    runs.mkdir()
    monkeypatch.setattr(strays, "temp_root", lambda: runs)

    def check(line: str, message: str) -> None:
        monkeypatch.chdir(tmp_path)
        assert run(line.split()) == 2
        out, err = capsys.readouterr()
        # Before the line that refuses, what takes seconds may have been announced.
        *announced, last = err.splitlines()
        assert message in last and last.startswith("serve-bench: ")
        said = ("asking torch which device it has", "importing ")
        assert all(one.startswith(said) for one in announced)
        assert out == ""
        assert list(runs.iterdir()) == []
        assert list(tmp_path.iterdir()) == []

    return check
