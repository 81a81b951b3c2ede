"""The command on a server without Serve: what it plans, keeps, and says."""

from pathlib import Path

import pytest

from serve_bench.analysis.course import Figures
from serve_bench.benchmarks.timeline.lens import condensed, mean_values, measure_scar
from serve_bench.cli.program import run
from serve_bench.core.content import Content
from serve_bench.core.facts import CourseFacts
from serve_bench.core.histogram import Histogram
from serve_bench.core.timeline import Timeline
from serve_bench.store import read
from serve_bench.view.figures import Value
from tests.cases import Call, cases
from tests.sheet_parts import view_of
from tests.stepped_server import SteppedServer

pytestmark = pytest.mark.process

STAGES = "20:2s,40:2s"
SLO = "constant arrivals, p99 <= 500 ms, errors <= 1 %"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run 20/s, then 40/s, on a server that resets the connection of request 50."""
    out = tmp_path_factory.mktemp("timeline") / "run"
    server = SteppedServer([(0.0, 20)], 0.02, drops=[50])
    with server:
        server.begin(0)  # requests of the warm-up count: 20 of at least 1 s
        words = ["timeline", "--url", server.url, "--stages", STAGES, "--slo", "p99=500ms"]
        assert run([*words, "--launches", "2", "--out", str(out), "--live", "plain"]) == 0
    return out


def test_a_run_of_a_url(folder: Path) -> None:
    """Two launches with each second of the load, and what was lost."""
    result = read(folder)
    first, second = result.trials
    assert first.course.due == second.course.due == (20, 20, 40, 40)
    lost = [len(trial.course.lost) for trial in (first, second)]
    assert sum(lost) == 1 and not result.failures
    view = view_of(result)
    (cell,) = view.rows
    assert [*cell.values["lost.reset"].launches.values()] == lost
    assert cell.dims["launches"] == len(cell.values["out_s"].launches) == 2
    seconds = [point for point in view.points if point.dims["point"] == "second"]
    assert [point.value("due") for point in seconds] == [20, 20, 40, 40] * 2
    assert {point.dims["slo"] for point in seconds} == {"in", "out"}
    assert "lost: 1 of 240 requests (1 reset)" in view.findings[0]


def test_figures_over_launches() -> None:
    """t(2, 0.975) = 4.303 and sd 1: 2 ± 2.48, not below 0. A class that a launch lacks is 0."""
    launches: list[Figures] = [{"out_s": at} for at in (1, 2, 3, None)]
    launches[1]["lost.cut"] = 4
    values = mean_values(dict(enumerate(launches)))
    out, alone = values["out_s"], mean_values({1: {"out_s": 3.0, "held_s": None}})
    assert (out.value, out.low, out.missing) == (2.0, 0.0, 1)
    assert out.high == pytest.approx(4.484, abs=1e-3) and values["lost.cut"].value == 1.0
    assert alone == {"out_s": Value(3.0, launches={1: 3.0})}


@cases("stages, scar", ("9:2s,90:1s,9:4s", 3.0), ("9:2s,90:1s,8:4s", 0.0), ("9:7s", 0.0))
def test_a_scar_is_what_latency_an_overload_left(stages: str, scar: float) -> None:
    """Of the second half of the first stage and the last one; 0: none, of rates that differ."""
    times = (9, 1, 50, 9, 9, 3, 3)  # ms by second
    latency = tuple(Histogram.of([ms * 10**6]).encode() for ms in times)
    timeline = Timeline.read(Content("a.toml", {"timeline": {"stages": stages}}))
    assert (measure_scar(CourseFacts(latency=latency), timeline) or 0) == pytest.approx(scar, 0.02)


@cases("slo, code", ("p99=2s", 0), ("p50=1ms", 3))
def test_the_gate(slo: str, code: int, tmp_path: Path, call: Call) -> None:
    """A run of which a second was out breaks it, and one that holds does not."""
    with SteppedServer([(0.0, 20)], 0.02) as server:
        words = ("timeline", "--url", server.url, "--stages", "20:1s", "--out", tmp_path / "r")
        _, err = call(*words, "--fail-on", "slo", "--slo", slo, code=code)
    says = "gate: url: 1 s out of the SLO in 1 launch (p50 <= 1 ms"
    assert (says in err) == bool(code)


def test_what_compare_reads(folder: Path) -> None:
    """A launch has the answers of the seconds within the SLO, a second of the whole load."""
    result = condensed(read(folder))
    rates: list[float] = []
    for trial in result.trials:
        assert trial.row.label == f"answered within the SLO, {STAGES}, {SLO}"
        rates += trial.metrics["throughput"].windows or ()
    assert sorted(rates) == [(20 + 40 + 40) / 4, 120 / 4]
    assert {planned.key for planned in result.plan} == {trial.key for trial in result.trials}
