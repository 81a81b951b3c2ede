"""Which set a test belongs to, and whether it can run here.

What does not run is counted and reported with its reason; no test is skipped, since a skip looks
like a pass.

`--set` names the set: `fast`, `test`, `ci` or `all`, each with everything of the sets before it. A
test that needs what this machine lacks is deselected; with SERVE_BENCH_NO_DESELECT=1 (continuous
integration) that fails the run. `-m`, and what a larger set holds, count as no deselection.
"""

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
from hypothesis import settings

from serve_bench.cli.program import run
from serve_bench.core.secrets import KNOWN
from serve_bench.observing import host
from serve_bench.observing.profiler import why_not_allowed
from serve_bench.serving import strays
from tests.cases import Capture, Patch

# A script that starts the tests with & has SIGINT ignored, and every process started by them would
# inherit that: the tests of Ctrl-C would wait for nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy host an example may take long: that is no fault of what is tested.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def _module(name: str) -> str | None:
    return None if importlib.util.find_spec(name) else f"{name} is not installed"


def _programs(*names: str) -> str | None:
    missing = [name for name in names if shutil.which(name) is None]
    return f"{' and '.join(missing)} not on PATH" if missing else None


#: The sets, and the first of them that runs a test with a marker. A test with no marker is `fast`.
SETS: Final = ("fast", "test", "ci", "all")
SET_OF: Final[dict[str, str]] = {
    **dict.fromkeys(("ray", "process"), "test"),
    **dict.fromkeys(("alone", "ci", "external", "torch"), "ci"),
    **dict.fromkeys(("long", "browser", "netns", "wheel"), "all"),
}

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")

#: What a marker needs: a reason why it cannot be had here, or None.
NEEDS: Final[dict[str, Callable[[], str | None]]] = {
    "ray": lambda: _module("ray"),
    "external": lambda: _programs("wrk", "ab", "ss"),
    "git": lambda: _programs("git"),
    "wheel": lambda: _module("hatchling"),
    "torch": lambda: _module("torch"),
    "browser": lambda: None if any(map(shutil.which, BROWSERS)) else "no Chromium on PATH",
    "netns": lambda: NEEDS["root"]() or _programs("ip"),
    "root": lambda: None if os.geteuid() == 0 else "not root",
    "ptrace": lambda: why_not_allowed(os.getpid()),
}

#: A test on a real Ray that takes so long, seconds, hangs; other tests: pyproject.toml.
HANGS_S: Final = 600

#: How many tests did not run, by the reason: for want of something here, or since a larger set has
#: them.
_left: Counter[str] = Counter()
TARGETS: Final = {"test": "test", "ci": "test-ci", "all": "test-all"}


def pytest_configure(config: pytest.Config) -> None:
    """Ignore transports that asyncio of 3.13 collects after their server; up to 3.12 they fail."""
    if sys.version_info >= (3, 13):
        what = "Exception ignored in. <function _SelectorTransport.__del__"
        line = f"ignore:{what}:pytest.PytestUnraisableExceptionWarning"
        config.addinivalue_line("filterwarnings", line)
    config.addinivalue_line("markers", "xdist_group: run by one worker of pytest-xdist")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--set", choices=SETS, default="all", help="which tests; the default is all")


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Let one worker run the tests of a file, or all that share clusters; end those that hang."""
    if item.get_closest_marker("ray"):
        item.add_marker(pytest.mark.timeout(HANGS_S))
    shares = "shared_serving" in getattr(item, "fixturenames", ())
    item.add_marker(pytest.mark.xdist_group("shared" if shares else item.path.stem))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """After `-m` and `-k`: take out what does not run, and keep count of why."""
    missing = {name: reason for name, need in NEEDS.items() if (reason := need()) is not None}
    kept, gone = [], []
    for item in items:
        markers = {marker.name for marker in item.iter_markers()}
        largest = max((SETS.index(SET_OF[name]) for name in markers & SET_OF.keys()), default=0)
        lacks = [name for name in missing if name in markers]
        if largest > SETS.index(config.getoption("--set")):
            reason = f"left for make {TARGETS[SETS[largest]]}"
        elif lacks:
            reason = f"deselected: {lacks[0]}: {missing[lacks[0]]}"
        else:
            kept.append(item)
            continue
        _left[reason] += 1
        gone.append(item)
    items[:] = kept
    if gone:
        config.hook.pytest_deselected(items=gone)
        if not hasattr(config, "workerinput"):
            _keep_count()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """With several processes (pytest-xdist) each collects all: the first one's count holds."""
    if not _left:
        _left.update(getattr(node, "workeroutput", {}).get("left", {}))
        _keep_count()


def _keep_count() -> None:
    """For scripts/test, which adds up several runs of pytest: one line for each test."""
    file = os.environ.get("SERVE_BENCH_DESELECTED")
    if file:
        with Path(file).open("a") as out:
            out.writelines(f"{reason}\n" for reason in _left.elements())


def _refused() -> bool:
    lacking = any(reason.startswith("deselected") for reason in _left)
    return lacking and os.environ.get("SERVE_BENCH_NO_DESELECT") == "1"


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left"] = dict(_left)
        return
    sound = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if _refused() and session.exitstatus in sound:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason, count in sorted(_left.items()):
        terminalreporter.write_line(f"{reason}: {count}")
    if _refused():
        terminalreporter.write_line("FAILED: nothing may be deselected here", red=True)


class _NoTorch(PathFinder):
    """Finds what is on the path, but no torch."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] == "torch":
            return None
        return super().find_spec(fullname, path, target)


@pytest.fixture(autouse=True)
def _torch_only_where_marked(request: pytest.FixtureRequest, monkeypatch: Patch) -> None:
    """Hide torch but from tests marked so: `make test` runs all others where there is none."""
    if any(request.node.get_closest_marker(name) for name in ("torch", "ray")):
        return
    finders = [_NoTorch if finder is PathFinder else finder for finder in sys.meta_path]
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.fixture(autouse=True)
def _quiet_host(monkeypatch: Patch) -> None:
    """Watch the host for no second before each run of a test, and forget other tests' secrets."""
    monkeypatch.setattr(host, "busy_cores", lambda watch=None: 0.0)
    KNOWN.clear()


@pytest.fixture
def call(capsys: Capture, monkeypatch: Patch) -> Callable[..., tuple[str, str]]:
    """Run a command line that must end with `code`; leave runs of other tests out of its output."""
    monkeypatch.setattr(strays, "sweep", dict)

    def check(*words: object, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        ended = run([str(word) for word in words])
        out, err = capsys.readouterr()
        assert ended == code, err
        return out, err

    return check


@pytest.fixture
def refuses(
    call: Callable[..., tuple[str, str]], monkeypatch: Patch, tmp_path: Path
) -> Callable[[str, str], None]:
    """Refuse a command line: exit code 2, one line on stderr, nothing started or written."""

    # Runs of others on this machine come and go meanwhile.
    runs = tmp_path.parent / f"{tmp_path.name}-runs"
    runs.mkdir()
    monkeypatch.setattr(strays, "temp_root", lambda: runs)

    def check(line: str, message: str) -> None:
        monkeypatch.chdir(tmp_path)
        out, err = call(*line.split(), code=2)
        # Before the line that refuses, what takes seconds may have been announced.
        *announced, last = err.splitlines()
        assert message in last and last.startswith("serve-bench: ")
        said = ("asking torch which device it has", "importing ")
        assert all(words.startswith(said) for words in announced)
        assert out == "" and not [*runs.iterdir(), *tmp_path.iterdir()]

    return check


@pytest.fixture
def beside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder that is not the current one, which must stay empty."""
    return tmp_path_factory.mktemp("beside")
