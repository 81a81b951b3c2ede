"""The command with planted figures: what it plans, says, keeps, resumes."""

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from serve_bench.benchmarks.tax import command as tax_command
from serve_bench.benchmarks.tax.bench import LayerRounds
from serve_bench.benchmarks.tax.options import TaxOptions
from serve_bench.benchmarks.tax.spec import LAYERS, TaxSpec
from serve_bench.cli import sides as cli_sides
from serve_bench.cli import sitting as sittings
from serve_bench.cli.sitting import Outcome, Sitting
from serve_bench.core.load_spec import Timing
from serve_bench.core.own_app import OwnApp, OwnDeployment
from serve_bench.core.result import PlannedTrial, Trial
from serve_bench.runner import in_turn
from serve_bench.runner.in_turn import SideCpu
from serve_bench.serving.bare import BareServer
from serve_bench.serving.server import Serving
from serve_bench.serving.strays import new_run, reap
from serve_bench.store import read
from serve_bench.view.frame import ViewRow
from serve_bench.view.lens import View
from tests.cases import Call, Patch, sure
from tests.kinds.sitting import sit_through
from tests.records import ROWS
from tests.servers import serving
from tests.sheet_parts import view_of
from tests.versus_records import sliced

RATES = {
    "uvicorn": 8000.0,
    "fastapi": 4000.0,
    "handle": 1000.0,
    "default": 500.0,
    "haproxy": 1500.0,
    "optimized": 2000.0,
}
CPU = {"proxy": 600.0, "replica": 400.0}


@dataclass
class Fake:
    """Layers with their RATES, in place of clusters; Ctrl-C comes after `stops` rows."""

    sd: float = 0.0
    stops: int = 10**6
    measured: list[str] = field(default_factory=list)

    def outcome_of(self, sitting: Sitting) -> Outcome:
        def measure(row: Any) -> Iterator[Trial]:
            self.measured.append(f"{row.parts[0].planned[0].round}/{row.row.label}")
            yield from (self.trial(at) for part in row.parts for at in part.planned)

        return sit_through(sitting, measure, lambda: len(self.measured) >= self.stops)

    def trial(self, at: PlannedTrial) -> Trial:
        noise = random.Random(at.key).gauss(0, self.sd)
        rate = RATES.get(at.variant, 500.0) * math.exp(noise)
        trial = sliced(at, rate, cpu_us=1000.0)
        done = sum(sure(trial.client.slices).completed)
        slices = structs.replace(
            sure(trial.client.slices),
            requests=done,
            cpu_s={role: us * done / 1e6 for role, us in CPU.items()},
            idle_cores={"proxy": 0.02, "replica": 0.01},
        )
        return replace(trial, client=structs.replace(trial.client, slices=slices))


@pytest.fixture
def fake(monkeypatch: Patch, tmp_path: Path) -> Fake:
    monkeypatch.chdir(tmp_path)
    made = Fake()
    monkeypatch.setattr(sittings, "outcome_of", made.outcome_of)
    return made


def view() -> View:
    return view_of(read(Path("run")))


def ratios(base: str) -> dict[str, ViewRow]:
    """Compare the rates of the last row with the first layer, or with the layer before."""
    rows = [row for row in view().comparisons if row.dims["metric"] == "throughput"]
    return {row.dims["layer"]: row for row in rows if row.dims["with"] == base}


@pytest.mark.usefixtures("fake")
def test_each_layer_is_compared_with_the_first_and_the_one_before(call: Call) -> None:
    out, _ = call("tax", "--out", "run")
    text = " ".join(out.split())
    assert "1 connection: Serve, default beside bare uvicorn: 93.8 % slower (93.8 to" in text
    assert "largest step, 1 connection: Serve by handle beside FastAPI on uvicorn: 75" in text
    assert len(out.splitlines()) <= 35
    assert '"value": 0.77\n' in call("report", "run", *"--threshold 77% --format json".split())[0]
    points = view().points
    places = [(point.dims["connections"], point.dims["layer"]) for point in points]
    assert places == [(users, layer.name) for users in (1, 100) for layer in LAYERS]
    layers = {point.dims["layer"]: point for point in points[len(LAYERS) :]}
    firsts, steps = ratios("first"), ratios("before")
    for name, rate in RATES.items():
        assert layers[name].value("throughput") == pytest.approx(rate, rel=0.01)
        if name != "uvicorn":
            ratio = firsts[name].value("b_over_a")
            assert ratio == pytest.approx(rate / RATES["uvicorn"], rel=0.01)
    assert steps["default"].value("b_over_a") == pytest.approx(0.5, rel=0.01)
    assert steps["haproxy"].value("b_over_a") == pytest.approx(3.0, rel=0.01)
    assert layers["handle"].dims["client"] == "handle"
    assert steps["handle"].dims["a"] == "FastAPI on uvicorn"
    used = {role: layers["default"].value(f"way_cpu.{role}") for role in CPU}
    idle = [layers["default"].value(f"idle_cpu.{role}") for role in CPU]
    assert used == pytest.approx(CPU) and idle == pytest.approx([2.0, 1.0])


def test_intervals_are_those_of_rounds_in_pairs(fake: Fake, call: Call) -> None:
    fake.sd = 0.05
    call("tax", "--out", "run", "--clients", "raw:100", "--layers", "uvicorn,default")
    a, b = (point.values["throughput"].launches for point in view().points)
    logs = [math.log(b[number] / a[number]) for number in a]
    mean = sum(logs) / 6
    se = math.sqrt(sum((log - mean) ** 2 for log in logs) / 5 / 6)
    interval = ratios("first")["default"].values["b_over_a"]
    assert interval.low == pytest.approx(math.exp(mean - 2.5706 * se), rel=1e-3)
    assert interval.high == pytest.approx(math.exp(mean + 2.5706 * se), rel=1e-3)
    # There is one layer before: the first.
    assert ratios("before")["default"].values == ratios("first")["default"].values


def test_rows_that_are_missing_are_measured_on_all_layers(fake: Fake, call: Call) -> None:
    fake.stops = 5
    call("tax", "--rounds", "4", "--out", "run", code=130)
    fake.stops = 10**6
    call("tax", "--resume", "run")
    rows = [f"{at}/{row}" for at in range(1, 5) for row in ("1 connection", "100 connections")]
    assert fake.measured == rows
    call("tax", "--resume", "run", "--rounds", "+1")
    rounds = {point.dims["rounds"] for point in view().points}
    assert len(fake.measured) == 10 and rounds == {5}
    assert "it does not go with --quick" in call("tax", "--quick", "--resume", "run", code=2)[1]


@pytest.mark.usefixtures("fake")
def test_layers_are_drawn_and_a_handle_has_windows_of_its_own(call: Call) -> None:
    call("tax", "--protocol", "stream", "--out", "run")
    suite = TaxSpec.stored(read(Path("run")).run.suite)
    assert TaxSpec.stored(suite.to_json()) == suite
    rows = [row for planned in suite.plan() for row in planned.rows]
    parts = [[at.variant for at in part.planned] for part in rows[0].parts]
    assert sorted(parts) == [["handle"], [layer.name for layer in LAYERS if layer.way != "handle"]]
    first = {row.parts[0].planned[0].variant for row in rows}
    assert first == {"handle", "uvicorn"}  # by draw, before or behind the slices
    planned = [at for row in rows for part in row.parts for at in part.planned]
    handles = [at.row for at in planned if at.variant == "handle"]
    assert {handle.protocol for handle in handles} == {"handle-stream"}
    assert {handle.stream_events for handle in handles} == {10}
    assert 300 < suite.expected_s(suite.plan()) < 3000


def test_cpu_of_a_layer_is_without_what_it_uses_while_others_are_loaded() -> None:
    cpu = SideCpu(idle={"proxy": 0.1})
    before = {7: ("proxy", 1_000_000_000), 8: ("replica", 0)}
    after = {7: ("proxy", 3_000_000_000), 8: ("replica", 500_000_000)}
    cpu.add(before, after)
    cpu.without_idle(4.0)
    assert cpu.seconds == pytest.approx({"proxy": 1.6, "replica": 0.5}) and cpu.whole
    trial = sliced(PlannedTrial("k", 1, "default", {}, ROWS[2]), 1.0)
    made = cpu.added_to(trial)
    assert made.metrics["server_cpu"].windows == pytest.approx((2.1,))
    assert cpu.facts["cpu_s"] == {"proxy": 1.6, "replica": 0.5}
    cpu.add(before, {7: ("proxy", 3_000_000_000)})  # a process ended: not judged
    bare = replace(trial, metrics={})
    assert "server_cpu" not in cpu.added_to(bare).metrics and cpu.added_to(bare).flags.way_changed


@pytest.mark.alone
def test_layers_get_the_same_requests_in_order(tmp_path: Path, monkeypatch: Patch) -> None:
    """Servers with a known answer stand for the layers: a bare one, and those of two clusters."""
    made = OwnApp("a:b", "a:b", "/", (OwnDeployment("Shop", 1),), ())
    import_app = lambda *about: replace(made, asked=about[3])  # noqa: E731
    monkeypatch.setattr(cli_sides, "import_app", import_app)
    monkeypatch.setattr(tax_command, "ingress_of", lambda *_: ("FastAPI", ()))
    monkeypatch.setattr(in_turn, "WARMING", Timing(0.1, 0.3, 1, 0.05))
    (tmp_path / "paths").write_text("\n".join(f"/{k}" for k in range(7)))
    (tmp_path / "bodies").write_text("a-secret-body\nanother-secret")
    flags = {"target": "a:b", "layers": "app,default,optimized", "clients": "raw:1"}
    files = {name: str(tmp_path / name) for name in ("paths", "bodies")}
    options = TaxOptions.of({**flags, **files, "request_timeout_s": "50"})
    suite = replace(tax_command.read_tax(options), side_s=0.3, steady_s=0.2, sample=False)
    assert "secret" not in json.dumps(suite.to_json())
    assert [side.variant.http_options for side in suite.launched] == [{"request_timeout_s": 50}] * 2
    assert suite.timeout_s == 55.0
    with serving() as bare, serving(delay_s=0.004) as slow, serving(delay_s=0.002) as quick:
        up = iter((slow, quick))
        urls: dict[int, str] = defaultdict(lambda: next(up).url)
        monkeypatch.setattr(BareServer, "url", bare.url.rstrip("/"))
        for kind in (BareServer, Serving):
            monkeypatch.setattr(kind, "alive", lambda self: True)
            for name in ("processes", "missing", "casualties"):
                monkeypatch.setattr(kind, name, lambda self: [], raising=False)
        monkeypatch.setattr(Serving, "environment_of", lambda self, row: {})
        monkeypatch.setattr(Serving, "url_of", lambda self, row: urls[id(self)].rstrip("/"))
        run_id, plan = new_run(), suite.plan()
        launch = LayerRounds(suite, tmp_path, run_id, rounds=plan).plan().launches[0]
        journal: Any = SimpleNamespace(say=lambda *_, **__: None)
        loaded = launch.bench(1, journal).load(plan[0].rows[0])
        reap(run_id)
    assert len(loaded.trials) == 3
    turns = [(f"/{k}", (b"a-secret-body", b"another-secret")[k % 2]) for k in range(7)]
    for parts in zip(*(server.asked for server in (bare, slow, quick)), strict=True):
        for part in parts:
            begin = turns.index(parts[0][0])
            assert len(part) > 1 and part == [turns[(begin + k) % 7] for k in range(len(part))]
