"""The plugin in a pytest of its own: figures, stored rounds, refusals, and what it does not cost.

Loads are scripted (tests/rounds.py), so that a round takes exactly what a test says; those marked
`process` drive a real load against a server with a known answer.
"""

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

import serve_bench.pytest_plugin.benchmark  # loaded here, a pytest within does not load it anew
import serve_bench.pytest_plugin.target
from serve_bench import pytest_plugin
from serve_bench.core.load_result import Counts, LoadResult
from serve_bench.core.load_spec import Load
from serve_bench.core.request_spec import Request
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load.failures import LoadError
from tests.cases import cases
from tests.rounds import Scripted, round_of
from tests.servers import KnownServer, every, serving

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


Drive = Callable[..., Scripted]


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # Not of the outer pytest: pytest-benchmark does not measure beside other processes.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_speed=ONE_TEST)
    return pytester


def run(inner: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return inner.runpytest_inprocess(*PLUGIN, *TIMED, *arguments, no_reraise_ctrlc=True)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Drive:

    def install(*script: float | LoadResult | BaseException) -> Scripted:
        drive = Scripted(list(script))
        monkeypatch.setattr(serve_bench.pytest_plugin.benchmark, "drive_load", drive)
        return drive

    return install


def stored(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text())["benchmarks"]
    return found


def test_a_session_that_does_not_use_it_loads_nothing_of_ours() -> None:
    code = (
        "import sys, serve_bench.pytest_plugin\n"
        "print(sorted(n for n in sys.modules if n.startswith('serve_bench.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['serve_bench.pytest_plugin']"
    assert set(pytest_plugin.VARIANTS) == set(BUILT_IN_VARIANTS)


def test_other_tests_are_left_alone(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        test_speed="def test_plain(benchmark):\n"
        "    assert benchmark(lambda: 3) == 3\n"
        "def test_other():\n    pass\n"
    )
    result = run(inner, "--benchmark-json=out.json", "--benchmark-min-rounds=1")
    result.assert_outcomes(passed=2)
    assert "serve-bench" not in result.stdout.str().replace("serve-bench-fixture", "")
    assert stored(inner.path / "out.json")[0]["options"]["timer"] == "perf_counter"


def test_stored_rounds_are_those_of_the_load(inner: pytest.Pytester, scripted: Drive) -> None:
    drive = scripted(9.0, 2.0, 4.0, 3.0)
    result = run(inner, "--benchmark-json=out.json")
    result.assert_outcomes(passed=1)
    (one,) = stored(inner.path / "out.json")
    assert one["stats"]["data"] == pytest.approx([2.0, 4.0, 3.0])
    assert one["options"]["timer"] == "load_time"
    assert [load.count for load in drive.loads] == [50] * 4  # a warm-up comes first
    told = one["extra_info"]
    assert told["requests_per_s"] == pytest.approx(150 / 9.0)
    assert (told["client"], told["connections"], told["requests"]) == ("raw", 2, 50)
    assert (told["errors"], told["client_bound"], told["rounds"]) == ({}, False, 3)
    assert (told["variant"], told["replicas"], told["ray"]) == (None, None, None)
    assert told["p50_ms"] <= told["p99_ms"] and len(told["host"]["id"]) == 12
    result.stdout.fnmatch_lines(["  16.7 requests/s, p50 1 ms, p99 1 ms, errors: none"])


def slo_test(inner: pytest.Pytester, arguments: str) -> None:
    call = f'serve_benchmark("http://127.0.0.1:9/best", "raw:2", rounds=2, {arguments})'
    inner.makepyfile(test_speed=f"def test_it(serve_benchmark):\n    {call}\n")


def test_an_slo_that_is_met_is_told_and_stored(inner: pytest.Pytester, scripted: Drive) -> None:
    scripted(1.0)
    slo_test(inner, 'requests=50, slo="p99=5ms"')  # of all rounds: one has too few requests
    result = run(inner, "--benchmark-json=out.json")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["  slo: p99 <= 5 ms, errors <= 1 %*met: p99 1 ms*(+80.0 %)"])
    (one,) = stored(inner.path / "out.json")
    told = one["extra_info"]["slo"]
    assert told["verdict"] == "met" and told["margin"] == pytest.approx(0.8, abs=0.001)


@cases(
    "arguments, failed, line",
    ('requests=50, slo="p99=500us"', 0, "slo: p99 1 ms is above 500 us (-100"),
    ('requests=10, slo="errors=5%"', 1, "slo: errors 10 % is above 5 % (-100 %)"),
    ('requests=10, slo="p50=1s", errors_allowed=True', 1, "slo: errors 10 % is above 1 % (-"),
)
def test_an_slo_that_is_missed_fails_the_test_in_one_line(
    arguments: str, failed: int, line: str, inner: pytest.Pytester, scripted: Drive
) -> None:
    load = Load(Request("http://127.0.0.1:9/"), count=10)
    scripted(round_of(load, 1.0, failed={"reset": 1}) if failed else 1.0)
    slo_test(inner, arguments)
    result = run(inner, "--benchmark-json=out.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"E * AssertionError: {line}*", "  not stored: the test failed"])
    assert "pytest_plugin/benchmark.py" not in result.stdout.str()
    assert stored(inner.path / "out.json") == []


def test_errors_that_an_slo_names_are_allowed(inner: pytest.Pytester, scripted: Drive) -> None:
    load = Load(Request("http://127.0.0.1:9/"), count=10)
    scripted(round_of(load, 1.0, failed={"reset": 1}))
    slo_test(inner, 'requests=10, slo="errors=10%"')
    run(inner).assert_outcomes(passed=1)
    slo_test(inner, 'requests=10, slo="p50=1s"')
    run(inner).assert_outcomes(failed=1)


def test_the_marker_of_a_test_keeps_what_it_says(inner: pytest.Pytester, scripted: Drive) -> None:
    scripted(1.0)
    inner.makepyfile(test_speed="import pytest\n@pytest.mark.benchmark(group='shop')" + ONE_TEST)
    run(inner, "--strict-markers", "--benchmark-json=out.json").assert_outcomes(passed=1)
    (one,) = stored(inner.path / "out.json")
    assert (one["group"], one["options"]["timer"]) == ("shop", "load_time")


def test_a_timer_of_their_own_is_refused(inner: pytest.Pytester) -> None:
    inner.makepyfile(
        test_speed="import pytest, time\n@pytest.mark.benchmark(timer=time.time)" + ONE_TEST
    )
    result = run(inner)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "serve_benchmark has a timer of its own: leave out timer" in result.stderr.str()


def test_without_timing_there_is_one_round(inner: pytest.Pytester, scripted: Drive) -> None:
    drive = scripted(1.0)
    inner.makepyfile(test_speed=ONE_TEST.replace("found.rounds == 3", "found.rounds == 1"))
    run(inner, "--benchmark-disable").assert_outcomes(passed=1)
    assert [load.count for load in drive.loads] == [50]
    slo_test(inner, 'requests=50, slo="p99=1us"')  # nor has it an SLO
    run(inner, "--benchmark-disable").assert_outcomes(passed=1)


def test_skipped_benchmarks_load_nothing(inner: pytest.Pytester, scripted: Drive) -> None:
    drive = scripted(1.0)
    run(inner, "--benchmark-skip").assert_outcomes(skipped=1)
    run(inner, "--benchmark-only").assert_outcomes(passed=1)
    assert len(drive.loads) == 4
    run(inner, "--benchmark-cprofile=tottime").assert_outcomes(passed=1)
    assert len(drive.loads) == 4 + 5  # a profiled repetition, and the test itself saw three


@cases("now_s, code", (1.0, 0), (1.2, 0), (1.4, 1))
def test_a_slower_round_breaks_the_gate(
    inner: pytest.Pytester, scripted: Drive, now_s: float, code: int
) -> None:
    scripted(1.0)
    run(inner, "--benchmark-save=base").assert_outcomes(passed=1)
    scripted(now_s)
    result = run(inner, "--benchmark-compare=0001", "--benchmark-compare-fail=median:30%")
    # pytest-benchmark raises it after the tests, out of the summary.
    assert (result.ret != 0) == bool(code)
    assert ("Performance has regressed" in result.stdout.str() + result.stderr.str()) == bool(code)


@cases(
    "turn, line",
    (
        round_of(LOAD, 1.0, failed={"status": 3, "reset": 1}),
        "round 1: 4 of 50 requests failed: 3 with another status (seen: 200), 1",
    ),
    (round_of(LOAD, 1.0, done=7), "round 1 was cut off after 9 s: 7 of 50 requests had ended"),
    (  # the others came in the drain, of which no figure of the round is
        replace(round_of(LOAD, 9.0), in_windows=Counts(50, 7, {}, 43)),
        "round 1 was cut off after 9 s: 7 of 50 requests had ended",
    ),
    (LoadError("connect", "h", 1, "refused"), "could not be run: connect: h:1: refused"),
)
def test_a_round_that_is_not_whole_fails_the_test(
    turn: LoadResult | BaseException, line: str, inner: pytest.Pytester, scripted: Drive
) -> None:
    scripted(turn)
    slo_test(inner, "requests=50, round_timeout_s=9")
    result = run(inner, "--benchmark-json=out.json")
    result.assert_outcomes(failed=1)
    assert line in result.stdout.str()
    assert stored(inner.path / "out.json") == []


def test_rounds_of_a_failed_test_are_not_stored(inner: pytest.Pytester, scripted: Drive) -> None:
    scripted(1.0)
    inner.makepyfile(test_speed=ONE_TEST + "    assert found.p99_ms < 0\n", test_right=ONE_TEST)
    result = run(inner, "--benchmark-json=out.json")
    result.assert_outcomes(failed=1, passed=1)
    assert [one["fullname"] for one in stored(inner.path / "out.json")] == [
        "test_right.py::test_it"
    ]
    assert result.stdout.str().count("not stored: the test failed") == 1


def test_a_round_is_exactly_so_many_requests_of_what_was_asked(inner: pytest.Pytester) -> None:
    with serving() as server:
        inner.makepyfile(
            test_speed=_against(
                server,
                "load='1', requests=30, rounds=2, warmup_rounds=0, route='/rank?k=3', body=[1, 2]",
            )
        )
        run(inner).assert_outcomes(passed=1)
    assert len(server.log) == 60 and {one.body for one in server.log} == {b"[1, 2]"}
    head = server.log[0].head.decode().lower()
    assert head.startswith("post /rank?k=3 ") and "content-type: application/json" in head


@cases("allowed", True, False)
def test_failed_requests_fail_unless_allowed(allowed: bool, inner: pytest.Pytester) -> None:
    with serving(every(10, "error500")) as server:
        inner.makepyfile(
            test_speed=_against(server, f"requests=50, rounds=2, errors_allowed={allowed}")
            + "    assert found.errors == {'status': 10} and found.failed == 10\n"
        )
        result = run(inner, "--benchmark-json=out.json")
    result.assert_outcomes(passed=int(allowed), failed=int(not allowed))
    assert ("round 1: 5 of 50 requests failed" in result.stdout.str()) is not allowed
    assert len(stored(inner.path / "out.json")) == int(allowed)


def _against(server: KnownServer, arguments: str) -> str:
    return (
        f"def test_it(serve_benchmark):\n    found = serve_benchmark({server.url!r}, {arguments})\n"
    )


@cases(
    "call, says",
    ("('http://h/', 'wrk:3')", "serve_benchmark: load: 'wrk:3' is not allowed; it takes N"),
    ("('http://h/', requests=3)", "serve_benchmark: requests must be at least the number of"),
    ("('http://h/', requests=50.5)", "serve_benchmark: requests: 50.5 is not allowed; it"),
    ("('http://h/', rounds=2.5)", "serve_benchmark: rounds: 2.5 is not allowed; it takes a"),
    ("('http://h/', warmup_rounds='5')", "serve_benchmark: warmup_rounds: '5' is not allowed"),
    ("('http://h/', headers=['x'])", "headers: ['x'] is not allowed; it takes {'Name'"),
    ("('http://h/', headers={'a': 1})", "headers: {'a': 1} is not allowed"),
    ("('http://h/', expect_status='abc')", "expect_status: 'abc' is not allowed; it takes"),
    ("('http://h/', rounds=0)", "serve_benchmark: rounds must be 1 or more, got 0"),
    ("('http://h/', warmup_rounds=-1)", "serve_benchmark: warmup_rounds must be 0 or more"),
    ("('http://h/', round_timeout_s=0)", "serve_benchmark: round_timeout_s must be above 0"),
    ("('http://h/', route='x')", "route: 'x' is not allowed; it takes a path"),
    ("('http://h/a', route='/b')", "route: http://h/a has a path already"),
    ("('http://h/', body={1: object()})", "body: no JSON can be made of it"),
    ("('http://h/', options={'A.x': 1})", "options are for an app, not for a URL"),
    ("('http://h/', timeout_s=0)", "serve_benchmark: timeout_s must be a number above 0"),
    ("('http://h/', 'raw:2', requests=50, slo='p99=1')", "slo: p99=1 is not allowed; it takes"),
    ("('http://h/', slo='ttft_p95=1s')", "slo: ttft_p95: is measured of streams alone"),
    ("('http://h/', slo=5)", "serve_benchmark: slo: 5 is not allowed; it takes text"),
    (
        "('http://h/', 'raw:2', requests=50, rounds=2, slo='p99.9=1s')",
        "serve_benchmark: slo: p99.9 needs 1,000 requests in all rounds, got 100",
    ),
    ("('gone.py:app')", "serve_target: gone.py: there is no such file in "),
    ("('app')", "serve_target: 'app' is not allowed; it takes module:app"),
)
def test_what_is_refused(inner: pytest.Pytester, scripted: Drive, call: str, says: str) -> None:
    drive = scripted(1.0)
    inner.makepyfile(test_speed=f"def test_it(serve_benchmark):\n    serve_benchmark{call}\n")
    result = run(inner)
    result.assert_outcomes(failed=1)
    said = result.stdout.str()
    assert said.count(says) <= 2 and says in said  # the second: the short summary
    assert "Traceback" not in said and "During handling" not in said
    assert drive.loads == []


def test_it_measures_once_in_a_test(inner: pytest.Pytester, scripted: Drive) -> None:
    scripted(1.0)
    inner.makepyfile(test_speed=ONE_TEST + "    serve_benchmark('http://127.0.0.1:9/', rounds=1)\n")
    result = run(inner)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*only once in a test, as pytest-benchmark has it"])


def test_an_interrupted_test_stores_nothing(inner: pytest.Pytester, scripted: Drive) -> None:
    scripted(1.0, KeyboardInterrupt())
    result = run(inner, "--benchmark-json=out.json")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert stored(inner.path / "out.json") == []


def test_ctrl_c_in_a_round_leaves_no_process(inner: pytest.Pytester) -> None:
    with serving(delay_s=0.05) as server:
        inner.makepyfile(
            test_speed=_against(server, "requests=100000, rounds=2, warmup_rounds=0")
            + "\ndef test_after():\n    print('not reached')\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *PLUGIN, *TIMED],
            cwd=inner.path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        while not server.log and process.poll() is None:
            pass
        workers = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0].decode()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said
    assert workers and not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_switched_off_is_said_and_tests_that_do_not_time_run(inner: pytest.Pytester) -> None:
    inner.makepyfile(test_it="def test_it(serve_target):\n    assert serve_target.variant\n")
    result = inner.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(errors=1, passed=1)
    result.stdout.fnmatch_lines([pytest_plugin.SWITCHED_OFF])


def test_it_says_what_to_install(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "pytest_benchmark" else find(name, *more),
    )
    result = inner.runpytest_inprocess(*PLUGIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([pytest_plugin.NOT_INSTALLED])


@cases(
    "arguments, ini, name",
    ((), "", "default"),
    ((), "serve_bench_variant = optimized", "optimized"),
    (("--serve-variant=haproxy",), "serve_bench_variant = optimized", "haproxy"),
    (("--serve-env", "OMP_NUM_THREADS=1"), "", "default+OMP_NUM_THREADS=1"),
)
def test_the_variant_is_that_of_options_then_of_the_configuration(
    inner: pytest.Pytester, arguments: tuple[str, ...], ini: str, name: str
) -> None:
    inner.makeini(f"[pytest]\n{ini}\n")
    inner.makepyfile(
        test_speed=f"def test_it(serve_target):\n    assert serve_target.variant == {name!r}\n"
    )
    run(inner, *arguments).assert_outcomes(passed=1)


@cases(
    "arguments, ini, says",
    (("--serve-env", "x"), "", "--serve-env: 'sha256:2d711642' is not allowed; it takes NAME"),
    (("--serve-env", "PYTHONPATH=x"), "", "PYTHONPATH is set by serve-bench itself"),
    ((), "serve_bench_variant = fast", "it takes default, haproxy, optimized"),
    (("--serve-variant=fast",), "", "invalid choice: 'fast'"),
)
def test_a_wrong_variant_is_refused_before_anything_starts(
    inner: pytest.Pytester, arguments: tuple[str, ...], ini: str, says: str
) -> None:
    inner.makeini(f"[pytest]\n{ini}\n")
    result = run(inner, *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR and says in result.stderr.str()


def test_before_an_app_is_up_there_is_nothing_to_ask(inner: pytest.Pytester) -> None:
    asks = "def test_{0}(serve_target):\n    serve_target.{0}\n"
    inner.makepyfile(test_speed=asks.format("url") + asks.format("proof"))
    result = run(inner)
    result.assert_outcomes(failed=2)
    assert result.stdout.str().count("\nserve_target: no app is up: call serve_target.deploy") == 2


def test_where_apps_are_looked_for(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
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
