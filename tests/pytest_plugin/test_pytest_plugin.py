"""The fixtures of the plugin, on scripted rounds of exactly known lengths (tests/rounds.py)."""

import importlib.util
import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec import structs

import serve_bench.pytest_plugin.benchmark  # loaded here, a pytest within does not load it anew
import serve_bench.pytest_plugin.target
from serve_bench import pytest_plugin
from serve_bench.core.load_result import Counts, LoadResult
from serve_bench.core.load_spec import Load
from serve_bench.core.request_spec import Request
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load.failures import LoadError
from serve_bench.pytest_plugin.benchmark import RoundFigures, Served, compute_figures
from tests.cases import Patch, cases
from tests.places import begin, execute
from tests.rounds import Scripted, round_of
from tests.servers import KnownServer, serving

pytestmark = pytest.mark.process

pytest_plugins = ["pytester"]

#: By module, whether or not this environment has the entry points.
PLUGIN = ("-p", "serve_bench.pytest_plugin", "-p", "no:cacheprovider")
TIMED = ("-p", "pytest_benchmark.plugin")

#: It takes a second to ask what CPU and which commit this is.
CONFTEST = """
import pytest
@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_generate_machine_info():
    return {"node": "here"}
@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_generate_commit_info():
    return {"id": "1"}
"""

LOAD = Load(Request("http://127.0.0.1:9/best"), connections=2, count=50)

ONE_TEST = """
def test_it(serve_benchmark):
    found = serve_benchmark("http://127.0.0.1:9/best", "raw:2", requests=50, rounds=3)
    assert found.rounds == 3 and found.failed == 0
"""


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: Patch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # Not of the outer pytest: pytest-benchmark does not measure beside other processes.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_speed=ONE_TEST)
    return pytester


@dataclass
class Session:
    """A pytest within, whose loads are scripted: what it said, and what it stored."""

    inner: pytest.Pytester
    monkeypatch: Patch
    drive: Scripted = field(default_factory=lambda: Scripted([1.0]))
    said: str = ""

    def script(self, *turns: float | LoadResult | BaseException) -> Scripted:
        self.drive = Scripted(list(turns))
        self.monkeypatch.setattr(serve_bench.pytest_plugin.benchmark, "drive_load", self.drive)
        return self.drive

    def run(self, source: str, *flags: str, **outcomes: int) -> pytest.RunResult:
        """Run a test; it and others beside it come out so, if an outcome is given."""
        if source:
            self.inner.makepyfile(test_speed=source)
        result = run(self.inner, "--benchmark-json=out.json", *flags)
        if outcomes:
            result.assert_outcomes(**outcomes)
        self.said = result.stdout.str() + result.stderr.str()
        return result

    @property
    def stored(self) -> list[dict[str, Any]]:
        whole: dict[str, Any] = json.loads((self.inner.path / "out.json").read_text())
        return [*whole["benchmarks"]]


@pytest.fixture
def session(inner: pytest.Pytester, monkeypatch: Patch) -> Session:
    made = Session(inner, monkeypatch)
    made.script(1.0)
    return made


def run(inner: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return inner.runpytest_inprocess(*PLUGIN, *TIMED, *arguments, no_reraise_ctrlc=True)


def test_a_session_that_does_not_use_it_loads_nothing_of_ours() -> None:
    code = (
        "import sys, serve_bench.pytest_plugin\n"
        "print(sorted(n for n in sys.modules if n.startswith('serve_bench.')))"
    )
    done = execute(sys.executable, "-c", code, check=True)
    assert done.stdout.strip() == "['serve_bench.pytest_plugin']"
    assert set(pytest_plugin.VARIANTS) == set(BUILT_IN_VARIANTS)


def test_other_tests_are_left_alone(session: Session) -> None:
    plain = "def test_plain(benchmark):\n    assert benchmark(lambda: 3) == 3\n"
    session.run(f"{plain}def test_other():\n    pass\n", "--benchmark-min-rounds=1", passed=2)
    assert "serve-bench" not in session.said.replace("serve-bench-fixture", "")
    assert session.stored[0]["options"]["timer"] == "perf_counter"


def test_stored_rounds_are_those_of_the_load(session: Session) -> None:
    drive = session.script(9.0, 2.0, 4.0, 3.0)
    session.run("", passed=1)
    (benchmark,) = session.stored
    assert benchmark["stats"]["data"] == pytest.approx([2.0, 4.0, 3.0])
    assert benchmark["options"]["timer"] == "load_time"
    assert [load.count for load in drive.loads] == [50] * 4  # a warm-up comes first
    info = benchmark["extra_info"]
    assert info["requests_per_s"] == pytest.approx(150 / 9.0)
    assert (info["client"], info["connections"], info["requests"]) == ("raw", 2, 50)
    assert (info["errors"], info["client_bound"], info["rounds"]) == ({}, False, 3)
    assert (info["variant"], info["replicas"], info["ray"]) == (None, None, None)
    assert info["p50_ms"] <= info["p99_ms"] and len(info["host"]["id"]) == 12
    assert "\n  16.7 requests/s, p50 1 ms, p99 1 ms, errors: none" in session.said


def slo_test(arguments: str) -> str:
    call = f'serve_benchmark("http://127.0.0.1:9/best", "raw:2", rounds=2, {arguments})'
    return f"def test_it(serve_benchmark):\n    {call}\n"


def test_an_slo_that_is_met_is_told_and_stored(session: Session) -> None:
    # Of all rounds: one has too few requests.
    result = session.run(slo_test('requests=50, slo="p99=5ms"'), passed=1)
    result.stdout.fnmatch_lines(["  slo: p99 <= 5 ms, errors <= 1 %*met: p99 1 ms*(+80.0 %)"])
    slo = session.stored[0]["extra_info"]["slo"]
    assert slo["verdict"] == "met" and slo["margin"] == pytest.approx(0.8, abs=0.001)


TEN = Load(Request("http://127.0.0.1:9/"), count=10)
RESET = round_of(TEN, 1.0, failed={"reset": 1})
FIFTY = "requests=50, round_timeout_s=9"
CUT_OFF = "round 1 was cut off after 9 s: 7 of 50 requests had ended"


@cases(
    "arguments, turn, line",
    ('requests=50, slo="p99=500us"', 1.0, "slo: p99 1 ms is above 500 us (-100"),
    ('requests=10, slo="errors=5%"', RESET, "slo: errors 10 % is above 5 % (-100 %)"),
    ('requests=10, slo="p50=1s", errors_allowed=True', RESET, "slo: errors 10 % is above 1 % (-"),
    ('requests=10, slo="errors=10%"', RESET, ""),  # it allows them
    ("requests=10, errors_allowed=True", RESET, ""),
    ('requests=10, slo="p50=1s"', RESET, "1 of 10 requests failed"),
    (FIFTY, round_of(LOAD, 1.0, failed={"status": 3, "reset": 1}), "4 of 50 requests failed: 3 w"),
    (FIFTY, round_of(LOAD, 1.0, done=7), CUT_OFF),
    # The others came in the drain, of which no figure of the round is.
    (FIFTY, structs.replace(round_of(LOAD, 9.0), in_windows=Counts(50, 7, {}, 43)), CUT_OFF),
    (FIFTY, LoadError("connect", "h", 1, "refused"), "could not be run: connect: h:1: refused"),
)
def test_a_missed_slo_or_a_round_that_is_not_whole_fails_the_test_in_one_line(
    arguments: str, turn: float | LoadResult | BaseException, line: str, session: Session
) -> None:
    session.script(turn)
    session.run(slo_test(arguments), **{"failed" if line else "passed": 1})
    assert line in session.said and len(session.stored) == (not line)
    assert ("  not stored: the test failed" in session.said) == line.startswith("slo")
    assert "pytest_plugin/benchmark.py" not in session.said


def test_the_marker_of_a_test_keeps_what_it_says_but_for_a_timer(session: Session) -> None:
    marked = "import pytest, time\n@pytest.mark.benchmark({})" + ONE_TEST
    session.run(marked.format("group='shop'"), "--strict-markers", passed=1)
    (benchmark,) = session.stored
    assert (benchmark["group"], benchmark["options"]["timer"]) == ("shop", "load_time")
    result = session.run(marked.format("timer=time.time"))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "serve_benchmark has a timer of its own: leave out timer" in session.said


def test_without_timing_there_is_one_round(session: Session) -> None:
    once = ONE_TEST.replace("found.rounds == 3", "found.rounds == 1")
    session.run(once, "--benchmark-disable", passed=1)
    assert [load.count for load in session.drive.loads] == [50]
    slo = slo_test('requests=50, slo="p99=1us"')  # nor has it an SLO
    session.run(slo, "--benchmark-disable", passed=1)


def test_skipped_benchmarks_load_nothing(session: Session) -> None:
    session.run("", "--benchmark-skip", skipped=1)
    session.run("", "--benchmark-only", passed=1)
    assert len(session.drive.loads) == 4
    session.run("", "--benchmark-cprofile=tottime", passed=1)
    assert len(session.drive.loads) == 4 + 5  # a profiled repetition; the test itself saw three


@cases("now_s, code", (1.0, 0), (1.2, 0), (1.4, 1))
def test_a_slower_round_breaks_the_gate(session: Session, now_s: float, code: int) -> None:
    session.run("", "--benchmark-save=base", passed=1)
    session.script(now_s)
    result = session.run("", "--benchmark-compare=0001", "--benchmark-compare-fail=median:30%")
    # pytest-benchmark raises it after the tests, out of the summary.
    assert (result.ret != 0) == ("Performance has regressed" in session.said) == bool(code)


def test_rounds_of_a_failed_test_are_not_stored(session: Session) -> None:
    session.inner.makepyfile(test_right=ONE_TEST)
    session.run(ONE_TEST + "    assert found.p99_ms < 0\n", failed=1, passed=1)
    assert [benchmark["fullname"] for benchmark in session.stored] == ["test_right.py::test_it"]
    assert session.said.count("not stored: the test failed") == 1
    # Before an app is up there is nothing to ask.
    asks = "def test_{0}(serve_target):\n    serve_target.{0}\n"
    session.run(asks.format("url") + asks.format("proof"), failed=2, passed=1)
    assert session.said.count("\nserve_target: no app is up: call serve_target.deploy") == 2


def against(server: KnownServer, arguments: str) -> str:
    call = f"serve_benchmark({server.url!r}, {arguments})"
    return f"def test_it(serve_benchmark):\n    found = {call}\n"


def test_a_round_is_exactly_so_many_requests_of_what_was_asked(inner: pytest.Pytester) -> None:
    asked = "load='1', requests=30, rounds=2, warmup_rounds=0, route='/rank?k=3', body=[1, 2]"
    with serving() as server:
        inner.makepyfile(test_speed=against(server, asked))
        run(inner).assert_outcomes(passed=1)
    assert len(server.log) == 60 and {entry.body for entry in server.log} == {b"[1, 2]"}
    head = server.log[0].head.decode().lower()
    assert head.startswith("post /rank?k=3 ") and "content-type: application/json" in head


@cases(
    "call, says",
    ("('http://h/', requests=3)", "serve_benchmark: requests must be at least the number of"),
    ("('http://h/', requests=50.5)", "serve_benchmark: requests: 50.5 is not allowed; it"),
    ("('http://h/', headers=['x'])", "headers: ['x'] is not allowed; it takes {'Name'"),
    ("('http://h/', expect_status='abc')", "expect_status: 'abc' is not allowed; it takes"),
    ("('http://h/', rounds=0)", "serve_benchmark: rounds must be 1 or more, got 0"),
    ("('http://h/', round_timeout_s=0)", "serve_benchmark: round_timeout_s must be above 0"),
    ("('http://h/', route='x')", "route: 'x' is not allowed; it takes a path"),
    ("('http://h/a', route='/b')", "route: http://h/a has a path already"),
    ("('http://h/', body={1: object()})", "body: no JSON can be made of it"),
    ("('http://h/', options={'A.x': 1})", "options are for an app, not for a URL"),
    ("('http://h/', slo=5)", "serve_benchmark: slo: 5 is not allowed; it takes text"),
    ("('http://h/', 'raw:2', requests=50, rounds=2, slo='p99.9=1s')", "slo: p99.9 needs 1,000 re"),
)
def test_what_is_refused(session: Session, call: str, says: str) -> None:
    session.run(f"def test_it(serve_benchmark):\n    serve_benchmark{call}\n", failed=1)
    assert 1 <= session.said.count(says) <= 2  # the second: the short summary
    assert "Traceback" not in session.said and "During handling" not in session.said
    assert session.drive.loads == []


def test_it_measures_once_in_a_test(session: Session) -> None:
    session.run(ONE_TEST + "    serve_benchmark('http://127.0.0.1:9/', rounds=1)\n", failed=1)
    assert "only once in a test, as pytest-benchmark has it" in session.said
    # An interrupted test stores nothing.
    session.script(1.0, KeyboardInterrupt())
    assert session.run("").ret == pytest.ExitCode.INTERRUPTED and session.stored == []


def test_ctrl_c_in_a_round_leaves_no_process(inner: pytest.Pytester) -> None:
    with serving(delay_s=0.05) as server:
        asked = against(server, "requests=100000, rounds=2, warmup_rounds=0")
        inner.makepyfile(test_speed=asked + "\ndef test_after():\n    print('not reached')\n")
        words = (sys.executable, "-m", "pytest", *PLUGIN, *TIMED)
        process = begin(*words, cwd=inner.path, stderr=subprocess.STDOUT)
        while not server.log and process.poll() is None:
            pass
        workers = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
    assert workers and not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_what_to_switch_on_or_to_install(inner: pytest.Pytester, monkeypatch: Patch) -> None:
    inner.makepyfile(test_it="def test_it(serve_target):\n    assert serve_target.variant\n")
    result = inner.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(errors=1, passed=1)  # tests that do not time run
    result.stdout.fnmatch_lines([pytest_plugin.SWITCHED_OFF])
    find = importlib.util.find_spec

    def hidden(name: str, *more: Any) -> Any:
        return None if name == "pytest_benchmark" else find(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    result = inner.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines([pytest_plugin.NOT_INSTALLED])


@cases(
    "arguments, ini, name",
    ((), "", "default"),
    ((), "serve_bench_variant = optimized", "optimized"),
    (("--serve-variant=haproxy",), "serve_bench_variant = optimized", "haproxy"),
    (("--serve-env", "OMP_NUM_THREADS=1"), "", "default+OMP_NUM_THREADS=1"),
)
def test_the_variant_is_that_of_options_then_of_the_configuration(
    session: Session, arguments: tuple[str, ...], ini: str, name: str
) -> None:
    session.inner.makeini(f"[pytest]\n{ini}\n")
    code = f"def test_it(serve_target):\n    assert serve_target.variant == {name!r}\n"
    session.run(code, *arguments, passed=1)


@cases(
    "arguments, ini, says",
    (("--serve-env", "x"), "", "--serve-env: 'sha256:2d711642' is not allowed; it takes NAME"),
    (("--serve-env", "PYTHONPATH=x"), "", "PYTHONPATH is set by serve-bench itself"),
    ((), "serve_bench_variant = fast", "it takes default, haproxy, optimized"),
    (("--serve-variant=fast",), "", "invalid choice: 'fast'"),
)
def test_a_wrong_variant_is_refused_before_anything_starts(
    session: Session, arguments: tuple[str, ...], ini: str, says: str
) -> None:
    session.inner.makeini(f"[pytest]\n{ini}\n")
    assert session.run("", *arguments).ret == pytest.ExitCode.USAGE_ERROR and says in session.said


def test_where_apps_are_looked_for(inner: pytest.Pytester, monkeypatch: Patch) -> None:
    seen: list[tuple[Path, ...]] = []
    made = serve_bench.pytest_plugin.target.KeptCluster

    def note(variant: Any, folders: tuple[Path, ...], log: Path) -> Any:
        seen.append(folders)
        return made(variant, folders, log)

    monkeypatch.setattr(serve_bench.pytest_plugin.target, "KeptCluster", note)
    inner.makeini("[pytest]\npythonpath = src\n")
    for name in ("fast", "other"):
        (inner.mkdir(name) / f"test_{name}.py").write_text(
            f"def test_it({'serve_target' if name == 'fast' else ''}):\n    pass\n"
        )
    (inner.path / "test_speed.py").unlink()
    run(inner).assert_outcomes(passed=2)
    here = inner.path.resolve()
    assert seen == [(here, here / "src", here / "fast")]


EIGHT = Load(Request("http://127.0.0.1:8000/best?user=3"), connections=8, count=100)


def figures(*rounds: LoadResult) -> RoundFigures:
    return compute_figures(EIGHT, rounds, Served("http://127.0.0.1:8000/"), {"id": "abc"})


def test_latencies_are_of_all_rounds_in_milliseconds() -> None:
    found = figures(*(round_of(EIGHT, 1.0, latency_ms=ms) for ms in (1.0, 1.0, 9.0)))
    assert found.p50_ms == pytest.approx(1.0, rel=0.01)
    assert found.p99_ms == pytest.approx(9.0, rel=0.01)
    assert found.max_ms == pytest.approx(9.0, rel=0.01)
    # The rate is of what was answered in the time.
    found = figures(structs.replace(round_of(EIGHT, 1.0), in_windows=Counts(100, 60, {}, 40)))
    assert found.completed == 60 and found.requests_per_s == pytest.approx(60.0)


@cases("bound, limited", (1, False), (2, True), (3, True))
def test_the_client_is_the_limit_if_in_most_rounds(bound: int, limited: bool) -> None:
    rounds = [round_of(EIGHT, 1.0, client_bound=number < bound) for number in range(3)]
    found = figures(*rounds)
    assert found.client_bound is limited
    assert found.client_reasons == (("never idle",) if limited else ())
    assert any(line.startswith("warning: ") for line in found.lines()) is limited
