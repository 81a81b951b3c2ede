"""The command on processes with planted levels: what it plans, says, keeps and resumes."""

import json
import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from msgspec import structs, to_builtins

from serve_bench.benchmarks.soak import bench, command
from serve_bench.benchmarks.soak.lens import gate
from serve_bench.cli import sitting as sittings
from serve_bench.cli.sitting import Outcome, Sitting, run_record
from serve_bench.core.facts import TrialUsage
from serve_bench.core.histogram import Histogram
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.load_spec import Load
from serve_bench.core.plan import Suite, list_trials, plan
from serve_bench.core.record_lines import to_line
from serve_bench.core.request_spec import Request
from serve_bench.core.result import Metric, PlannedTrial, Result, Trial, result_of
from serve_bench.core.soak import SoakSpec, block_length_s, soak_row
from serve_bench.core.traffic import Traffic
from serve_bench.load.failures import LoadError
from serve_bench.runner import service
from serve_bench.runner.agenda import Agenda
from serve_bench.runner.runner import Journal, run
from serve_bench.runner.served_bench import ServedClusters
from serve_bench.store import RunFolder, read
from serve_bench.store.files import read_toml, suite_file
from serve_bench.view.frame import ViewRow
from tests import records
from tests.cases import Call, Patch, cases, sure
from tests.kinds.sitting import sit_through
from tests.rounds import round_of
from tests.runner.fakes import Script, install, interrupt
from tests.servers import serving
from tests.sheet_parts import view_of
from tests.suites import suite_with

pytestmark = pytest.mark.process

RATE: Final = 300.0
DONE: Final = 1500
"""Requests of a block."""

Level = Callable[[float], float]
"""MB at so many million requests."""


def still(x: float) -> float:
    return 90.0


def leaking(x: float) -> float:
    return 140.0 + 1080.0 * x


@dataclass
class Fake:
    """Stands in for clusters: MB by role, with `noise`; Ctrl-C comes after `stops` blocks."""

    memory: Mapping[str, Level]
    threads: Level = lambda x: 20.0
    noise: float = 0.05
    stops: int = 10**6
    launches: int = 0
    seed: str = ""
    measured: list[str] = field(default_factory=list)

    def outcome_of(self, sitting: Sitting) -> Outcome:
        self.launches += 1
        answered = count(step=DONE)

        def measure(row: Any) -> Iterator[Trial]:
            self.measured.append(row[0].row.label)
            yield self.trial(row[0], next(answered))

        return sit_through(sitting, measure, lambda: len(self.measured) >= self.stops)

    def trial(self, at: PlannedTrial, answered: int) -> Trial:
        """Make a block of 5 s."""
        draw = random.Random(f"{self.seed}{self.launches}{at.key}")
        x = (answered + DONE) / 1e6
        latency = Histogram.of(round(1e6 * draw.lognormvariate(0, 0.2)) for _ in range(DONE))
        processes = [
            {
                **{"pid": 1000 * self.launches + number, "role": role},
                "title": "ray::ServeReplica:default:Shop" if role == "replica" else role,
                "pss_mb": max(0.0, round(level(x) + draw.gauss(0, self.noise), 3)),
                **{"threads": round(self.threads(x)), "descriptors": 30},
            }
            for number, (role, level) in enumerate(self.memory.items())
        ]
        return records.changed(
            records.trial(at, RATE, latency=latency.coarser(4).encode()),
            launch=str(self.launches),
            started_at=f"2026-01-02T03:04:{self.launches:02}+00:00",
            window_s=5.0,
            warmup=Warmup(0.0, True, 0, True),
            counts=Counts(DONE, DONE, {}, 0),
            client={"total": {"sent": DONE, "completed": DONE, "failed": {}, "in_flight": 0}},
            seconds={"total": 5.2, "measured": 5.0},
            usage={"host": {"free_mb": 4000.0}, "processes": processes},
        )


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def use(monkeypatch: Patch, fake: Fake) -> Fake:
    monkeypatch.setattr(sittings, "outcome_of", fake.outcome_of)
    return fake


SOAK: Final = ("soak", "noop", "--for", "5m", "--out", "run")
TRAFFIC: Final = Traffic()


def processes(result: Result) -> dict[str, ViewRow]:
    points = view_of(result).points
    return {point.name: point for point in points if point.dims["point"] == "process"}


def soak_suite(spec: SoakSpec, rate: float | None = None) -> Suite:
    whole = suite_with(read_toml(suite_file("noop")), "noop.toml")
    return replace(whole, rows=(soak_row(10, rate, TRAFFIC),), soak=spec)


def planned_blocks(spec: SoakSpec) -> list[PlannedTrial]:
    return list_trials(plan(replace(soak_suite(spec), cells=({},))))


def soaked(fake: Fake, blocks: int = 60, leak: float = 50.0) -> Result:
    spec = SoakSpec(5.0 * blocks, 5.0, leak=leak)
    rows = planned_blocks(spec)
    fake.launches += 1
    trials = [fake.trial(block, at * DONE) for at, block in enumerate(rows)]
    asked = replace(records.run(*rows), command="soak", suite={"name": "soak", "soak": vars(spec)})
    return result_of([asked, *trials])


def test_a_leak_is_found_in_its_process() -> None:
    result = soaked(Fake({"proxy": still, "replica": leaking, "controller": still}))
    leaks, steady = view_of(result).findings
    assert leaks.startswith("Replica Shop grows by 1,0")
    assert steady.startswith("Memory of 2 of 3 processes does not grow")
    assert gate(result)[0][0].startswith("replica Shop grows by 1,0")
    replica, *others = processes(result).values()
    slope, hourly = replica.values["pss_mb_slope"], replica.values["mb_per_hour"].value
    assert slope.low < 1080 < slope.high  # type: ignore[operator]
    assert slope.value == pytest.approx(1080, rel=0.01)
    assert hourly == pytest.approx(1080 * RATE * 3600 / 1e6 * 5 / 5.2, rel=0.01)
    assert replica.value("hours_left") == pytest.approx(4000 / hourly)
    assert [process.dims["verdict"] for process in others] == ["does not grow"] * 2
    # Threads that grow are a leak too.
    broken, _ = gate(soaked(Fake({"proxy": still}, threads=lambda x: 20 + 1000 * x)))
    assert broken[0].startswith("proxy grows by 999") and "threads/million" in broken[0]


@pytest.mark.parametrize("seed", range(10))
def test_no_leak_is_not_called_one(seed: int) -> None:
    memory = dict.fromkeys(("proxy", "replica", "controller", "raylet", "gcs"), still)
    result = soaked(Fake(memory, noise=0.5, seed=str(seed)))
    assert not any(process.dims["leaks"] for process in processes(result).values())


@cases("blocks, mb, verdict", (12, 2, "too short to say"), (12, 16, "grows"), (120, 2, "grows"))
def test_a_growth_that_may_be_a_warm_up_is_not_judged(blocks: int, mb: float, verdict: str) -> None:
    """A controller took 2 MB in the first minute of a load of 30/s. 120 blocks are 10 minutes."""
    slope = mb / (DONE * (blocks - 1) / 1e6)
    result = soaked(Fake({"controller": lambda x: 90 + slope * x}, noise=0.02), blocks, leak=5.0)
    assert processes(result)["controller"].dims["verdict"] == verdict


@cases(
    "memory, noise, slo, code, says",
    (leaking, 0.05, "p99=50ms", 3, "gate: replica Shop grows by"),
    (still, 40.0, "p99=50ms", 1, "gate: not judged: too short to say of replica Shop: another"),
    (still, 0.05, "p99=1ms", 3, "slo: 10 connections"),  # over all blocks, not by block
    (still, 0.05, "p99=50ms", 0, ""),
)
def test_the_gate(
    memory: Level, noise: float, slo: str, code: int, says: str, monkeypatch: Patch, call: Call
) -> None:
    use(monkeypatch, Fake({"replica": memory}, noise=noise))
    out, err = call(*SOAK, "--fail-on", "leak,slo", "--slo", slo, code=code)
    found = [line for line in err.splitlines() if line.startswith(("gate:", "slo:"))]
    assert len(found) == bool(code) and all(line.startswith(says) for line in found)
    assert ("met by 1 of 1 row" in " ".join(out.split())) == (slo == "p99=50ms")


def test_replaced_and_added_processes_are_series_of_their_own() -> None:
    """A pid that ends early is counted, not judged; one that comes later is."""
    result = soaked(Fake({"replica": still, "proxy": still}))
    trials = []
    for at, trial in enumerate(result.trials):
        replica, proxy = trial.usage.processes
        replica = structs.replace(replica, pid=7 if at < 5 else 8)
        later = (structs.replace(replica, pid=9),) if at >= 30 else ()
        trials.append(replace(trial, usage=TrialUsage(processes=(replica, proxy, *later))))
    result = replace(result, trials=tuple(trials))
    assert {*processes(result)} == {"proxy", "replica Shop 2", "replica Shop 3"}
    view = view_of(result)
    assert view.rows[0].dims["ended_early"] == 1 and not view.rows[0].value("free_mb")
    assert any("1 process that ended early" in finding for finding in view.findings)


def test_a_resumed_soak_joins_the_slopes_of_its_launches(monkeypatch: Patch, call: Call) -> None:
    fake = use(monkeypatch, Fake({"replica": leaking}, stops=25))
    assert "serve-bench soak --resume run" in call(*SOAK, code=130)[1]
    fake.stops = 10**6
    call("soak", "--resume", "run", "--fail-on", "leak", code=3)
    assert fake.measured == [f"block {at}" for at in range(1, 61)]
    replica = processes(read(Path("run")))["replica Shop"]
    assert replica.dims["launches"] == 2
    assert replica.value("pss_mb_slope") == pytest.approx(1080, rel=0.02)
    call("soak", "--resume", "run")
    assert len(fake.measured) == 60


def test_a_day_of_blocks_fits_in_50_mb() -> None:
    """Of a load of 2,000 requests/s on a cluster with 25 processes: its record as it is written."""
    spec = SoakSpec(86_400.0, block_length_s(86_400.0))
    assert (spec.blocks, spec.block_s) == (1440, 60.0)
    assert [block_length_s(for_s) for for_s in (30.0, 300.0, 3600.0)] == [5.0, 5.0, 60.0]
    draw = random.Random(1)
    plan = planned_blocks(spec)
    latency = Histogram.of(round(1e6 * draw.lognormvariate(1, 0.8)) for _ in range(120_000))
    block = Fake({f"role_{at}": still for at in range(25)}).trial(plan[-1], 10**8)
    whole = Metric("ns", "lower", histogram=latency.encode())
    times = dict.fromkeys(("latency", "service_time", "pickup"), whole)
    full = replace(block, metrics={**block.metrics, **times})
    small = replace(bench.thinned(full, ()), usage=block.usage)
    assert set(small.metrics) == {"throughput", "latency"}
    coarse = small.metrics["latency"].values
    assert coarse.count == 120_000
    for share in (0.5, 0.99):
        assert coarse.percentile(share) == pytest.approx(latency.percentile(share), rel=0.01)
    planned = sum(len(json.dumps(vars(trial), default=vars)) for trial in plan)
    assert len(to_line(small)) * spec.blocks + planned < 50e6


def test_blocks_on_a_cluster_of_ours(tmp_path: Path, monkeypatch: Patch) -> None:
    """One launch; a load that fails costs its block, and an interrupted one has no levels."""
    spec = SoakSpec(25.0, 5.0)
    suite = replace(soak_suite(spec, 50.0), windows=1, window_s=5.0)
    faults: Any = {"load 2": LoadError("connect", "127.0.0.1", 9, "refused"), "load 4": interrupt}
    script = Script(faults, folder=tmp_path / "run")
    folder = RunFolder.create(tmp_path / "run", now=datetime.now(UTC))
    install(script, monkeypatch)
    with folder:
        folder.append(run_record(folder, "soak", tuple(list_trials(plan(suite))), suite.to_json()))
        about = Agenda(suite, plan(suite)), "abc123", folder.path
        with pytest.raises(KeyboardInterrupt):
            run(ServedClusters(*about, bench=bench.SoakBench).plan(), Journal(folder, script))
    result = read(folder.path)
    labels = [(trial.row.label, trial.usage != TrialUsage()) for trial in result.trials]
    assert labels == [("block 1", True), ("block 3", True), ("block 4", False)]
    kept = {*bench.KEPT_OF_CLIENT}
    assert all({*to_builtins(trial.client)} <= kept for trial in result.trials)
    assert sum(event.startswith("call deploy") for event in script.events) == 1
    parts = view_of(result).points  # no process was read
    assert [point.dims.get("blocks") for point in parts] == [1, 2, 1]


def test_a_server_that_runs_already_is_loaded(monkeypatch: Patch, call: Call) -> None:
    """Real loads in short blocks, each with the levels of this process in place of a server's."""
    here = SimpleNamespace(pid=os.getpid(), role="proxy", title="ray::ProxyActor.run")
    gone = SimpleNamespace(pid=2**22 + 1, role="replica", title="x")
    for module in (service, command):
        monkeypatch.setattr(module, "behind", lambda url, socket=None: [here, gone])
    monkeypatch.setattr(command, "read_spec", lambda options: SoakSpec(0.8, 0.05))
    with serving() as server:
        words = ("soak", server.url, "--out", "run", "--rate", "200", "--live", "plain")
        assert "proxy" in call(*words)[0]
    usages = [trial.usage for trial in read(Path("run")).trials]
    assert len(usages) == 16 and all(sure(usage.host.free_mb) > 0 for usage in usages)
    for (levels,) in (usage.processes for usage in usages):
        assert levels.title == "ray::ProxyActor" and levels.pid == os.getpid()
        assert sure(levels.pss_mb) > 5 and sure(levels.threads) >= 1
        assert sure(levels.descriptors) >= 3


def test_an_open_loop_has_room_when_it_falls_behind() -> None:
    row = replace(soak_row(10, 50.0, TRAFFIC), run=3)
    load = bench.load_of_block(
        Load(Request("http://127.0.0.1:1/"), connections=10), row, SoakSpec(60.0, 5.0, "poisson")
    )
    assert (load.rate, load.connections, load.max_connections) == (50.0, 10, 1000)
    assert (load.arrivals, load.seed) == ("poisson", 3)
    assert round_of(load, 1.0).measured.completed
