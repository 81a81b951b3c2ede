"""A whole run of each kind, as tests/runner/stories/KIND.txt tells it.

Where a story changes on purpose, `python -m tests.runner.test_stories` writes all of them anew.
"""

import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from serve_bench.benchmarks.rpc.bench import RpcBench
from serve_bench.benchmarks.rpc.spec import RpcSpec
from serve_bench.benchmarks.scale.bench import ScaleBench
from serve_bench.benchmarks.tax.bench import LayerRounds
from serve_bench.benchmarks.tax.spec import LAYERS, Taxed, TaxSpec
from serve_bench.benchmarks.versus.bench import VersusRounds
from serve_bench.benchmarks.versus.spec import VersusSpec
from serve_bench.cli.sitting import done
from serve_bench.core.axes import cell_defaults
from serve_bench.core.content import Content
from serve_bench.core.ladder import Ladder
from serve_bench.core.plan import list_trials, parse_row, plan
from serve_bench.core.request_spec import Request
from serve_bench.core.result import PlannedTrial, Result
from serve_bench.core.traffic import Traffic
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.runner.agenda import Agenda, plan_listed, rest_of
from serve_bench.runner.in_turn import chosen_of
from serve_bench.runner.runner import Journal, run
from serve_bench.runner.served_bench import ServedClusters
from serve_bench.runner.service import Service
from serve_bench.spec.sides import Side, SidesSpec
from serve_bench.spec.suite import read_services
from serve_bench.store import RunFolder, StoreError, read
from tests.cases import Patch, cases
from tests.records import run as run_record
from tests.runner.fakes import TROUBLES, Looking, Script, install
from tests.scale_records import scale_suite
from tests.suites import suite_with

STORIES: Final = Path(__file__).with_name("stories")

Work = tuple[list[PlannedTrial], Any]
"""What is planned, and the launches of it that are missing."""

Make = Callable[[Script, Path, Result | None], Work]
"""The work of a run in a folder, all of it or what its earlier records lack."""

SIDES: Final = (Side("default"), Side("optimized", BUILT_IN_VARIANTS["optimized"]))
ROWS: Final = (parse_row("raw:100", Traffic(), "x"), parse_row("8", Traffic(), "x"))
SERVICES: Final = tuple(Service(name, Request(f"http://{name}:1/")) for name in "ab")


def served(**flags: Any) -> Make:
    def make(script: Script, place: Path, earlier: Result | None) -> Work:
        inside: Any = Looking(script) if flags.get("profile") else None
        given = {"launches": 1, "windows": 2, **flags}
        profile = given.pop("profile", False)
        suite = suite_with(**given)
        agenda = Agenda(suite, plan(suite), profile)
        if earlier is not None:
            agenda = rest_of(earlier, suite, profile)
        cells = [cell for launch in plan(suite) for cell in launch.cells]
        launches = ServedClusters(agenda, "abc123", place, inside=inside).plan()
        return [trial for _, trials in cells for trial in trials], launches

    return make


def url(script: Script, place: Path, earlier: Result | None) -> Work:
    services = {service.name: service.request for service in SERVICES}
    suite = replace(read_services(Content("sweep"), services), rows=(), ladder=Ladder((1, 2)))
    inside: Any = Looking(script)
    return [], ServedClusters(Agenda(suite, plan(suite)), "abc123", place, inside=inside).plan()


S = TypeVar("S", bound=SidesSpec)


def sides_spec(kind: type[S], cells: int, sides: tuple[Side, ...], rows: Any, **more: Any) -> S:
    settings = tuple({**cell_defaults(), "num_replicas": 1 + cell} for cell in range(cells))
    return kind("mine", sides, settings, rows, rounds=2, side_s=0.1, sample=False, **more)


def rounds_of(spec: SidesSpec, earlier: Result | None) -> tuple[list[PlannedTrial], Any, Any]:
    """All trials of a run, the rounds that are left, and how rows were sliced before."""
    pairings = [pairing for planned in spec.plan() for pairing in planned.pairings]
    trials = earlier.trials if earlier else ()
    rest, chosen = spec.plan(trial.key for trial in trials), chosen_of(pairings, trials)
    return [trial for pairing in pairings for trial in pairing.planned], rest, chosen


def versus(cells: int = 1, urls: bool = False, sides: tuple[Side, ...] = SIDES) -> Make:
    def make(script: Script, place: Path, earlier: Result | None) -> Work:
        addresses = {"default": "http://a/", "optimized": "http://b/"} if urls else None
        spec = sides_spec(VersusSpec, cells, sides, ROWS if urls else ROWS[:1], urls=addresses)
        trials, rest, chosen = rounds_of(spec, earlier)
        asked = [service.request for service in SERVICES[:2]] if urls else []
        about = (spec, place, "abc123", chosen)
        return trials, VersusRounds(*about, rounds=rest, requests=asked).plan()

    return make


def tax(script: Script, place: Path, earlier: Result | None) -> Work:
    taxed = Taxed(tuple(layer.name for layer in (LAYERS[0], *LAYERS[2:5])), (), "")
    spec = sides_spec(TaxSpec, 1, (SIDES[0], SIDES[0]), ROWS[:1], tax=taxed)
    trials, rest, chosen = rounds_of(spec, earlier)
    return trials, LayerRounds(spec, place, "abc123", chosen, rounds=rest).plan()


def rpc(script: Script, place: Path, earlier: Result | None) -> Work:
    world: dict[str, Any] = {"state_size": ("10",), "nlayers": (1,), "world_size": (2, 3)}
    suite = RpcSpec(backend=("torch", "ray"), **world, master_addr="localhost", episodes=2)
    bench, left = partial(RpcBench, suite, place, "abc123"), suite.plan(done(earlier))
    return list_trials(suite.plan()), plan_listed(left, bench, suite.expected_s)


def scale(workload: Any, **settings: Any) -> Make:
    def make(script: Script, place: Path, earlier: Result | None) -> Work:
        suite = scale_suite(workload, **{"launches": 1, "size": 2, **settings})
        bench, left = partial(ScaleBench, suite, place, "abc123"), suite.plan(done(earlier))
        return list_trials(suite.plan()), plan_listed(left, bench, suite.expected_s)

    return make


@dataclass(frozen=True)
class Kind:
    """A kind of run and what can go wrong with it: calls by number, with `fakes.TROUBLES`.

    `ladder`: its rows are found as it goes on. `together`: sides are measured in turn, and one that
    fails takes the others with it.
    """

    make: Make
    troubles: str = ""
    resumable: bool = True
    ladder: bool = False
    together: bool = False


BOTH: Final = ("default", "optimized")
CLIENTS: Final = ("8", "raw:100")
ATTACHED: Final = {"address": "10.0.0.1:6379", "variants": ("as-it-is",)}
KINDS: Final[Mapping[str, Kind]] = {
    "micro": Kind(
        served(variant=BOTH, clients=CLIENTS, matrix={"num_replicas": (1, 2)}),
        "import 1: fails; start 1: fails ctrl-c; deploy 1: fails; deploy 2: fails dies;"
        "prove 1: fails; load 1: silent lost-worker; load 4: lost-part;"
        "load 2: refused lost-part refused-and-lost-part killed broken interrupted ctrl-c"
        " interrupted-and-killed; append-trial 2: full",
    ),
    "micro-profiled": Kind(
        served(variant=["default"], clients=CLIENTS, profile=True),
        "load 3: refused; load 4: interrupted; look 1: fails ctrl-c; looked 1: ctrl-c;"
        "samples 2: full",
    ),
    "press": Kind(
        served(variant=["default"], requests_per_client=10, users="1,2,4"),
        "load 1: refused ctrl-c; load 2: cut; load 3: interrupted",
        ladder=True,
    ),
    "sweep-url": Kind(
        url,
        "load 1: lost-worker silent; load 2: refused; load 4: interrupted ctrl-c;"
        "samples 1: full; append-trial 1: full",
        resumable=False,
        ladder=True,
    ),
    "versus": Kind(
        versus(cells=2),
        "start 1: fails; start 2: fails; begin 2: ctrl-c; prove 1: fails; deploy 3: fails;"
        "slices 2: refused silent-side lost-part refused-and-lost-part killed ctrl-c;"
        "append-trial 2: full; append-teardown 1: full",
        together=True,
    ),
    "versus-sides": Kind(
        versus(cells=2, sides=(*SIDES, Side("haproxy"))),
        "start 1: fails; start 2: fails; prove 1: fails; prove 3: fails; deploy 3: fails;"
        "slices 3: refused lost-part ctrl-c",
        together=True,
    ),
    "versus-url": Kind(versus(urls=True), "load 3: refused; slices 2: ctrl-c", resumable=False),
    "tax": Kind(
        tax,
        "bare 1: fails; start 1: fails; slices 2: refused lost-part; slices 3: ctrl-c",
        together=True,
    ),
    "rpc": Kind(
        rpc,
        "start 1: fails; world 1: fails dies; episode 1: ctrl-c; episode 2: fails;"
        "episode 4: fails dies ctrl-c; end 1: fails; samples 1: full; append-trial 2: full",
    ),
    "scale": Kind(
        scale("curve", replicas=(1, 2)),
        "start 1: fails; put 1: fails ctrl-c; put 2: dies; prove 1: fails; crew 1: fails;"
        "nodes 1: lost-node lost-part broken; nodes 2: interrupted; remove 1: fails;"
        "load 1: fails; samples 1: full; append-trial 1: full",
    ),
    "scale-graph": Kind(scale("chain"), "load 1: fails silent interrupted; load 2: refused killed"),
    "scale-attached": Kind(scale("curve", replicas=(1, 2), **ATTACHED), "put 2: dies"),
}
CASES: Final = [
    (name, call.strip(), trouble)
    for name, kind in KINDS.items()
    for call, troubles in re.findall(r"([\w-]+ \d+): ([^;]+)", kind.troubles)
    for trouble in troubles.split()
]


def play(script: Script, kind: Kind, folder: Path, monkeypatch: Patch) -> str:
    """Works off a run, or what is missing of it; how it ended."""
    earlier = read(folder / "run") if (folder / "run").exists() else None
    with monkeypatch.context() as patches:
        install(script, patches)
        if earlier is None:
            records = RunFolder.create(folder / "run", now=datetime.now(UTC))
        else:
            records, _ = RunFolder.resume(folder / "run")
        with records:
            planned, launches = kind.make(script, records.path, earlier)
            if earlier is None:
                records.append(run_record(*planned))
            journal, first = Journal(records, script), 5 if earlier else 1
            try:
                return "complete" if run(launches, journal, first) else "incomplete"
            except (KeyboardInterrupt, StoreError) as error:
                return type(error).__name__


def tell_story(name: str, folder: Path, monkeypatch: Patch) -> str:
    script = new_script(name, folder)
    ended = play(script, KINDS[name], folder, monkeypatch)
    return "\n".join([*script.events, f"ended {ended}"]) + "\n"


def new_script(name: str, folder: Path) -> Script:
    """Make a script; calls in threads take no time there."""
    script = Script(folder=folder)
    if name.startswith(("versus", "tax")):
        script.costs_s = {"load": 1.0, "begin": 1.0, "slices": 2.0, "close": 1.0}
    return script


@pytest.mark.parametrize("name", KINDS)
def test_the_story_of_a_run(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    story = STORIES / f"{name}.txt"
    assert tell_story(name, tmp_path, monkeypatch) == story.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "call", "trouble"), CASES, ids=[" ".join(case) for case in CASES])
def test_whatever_goes_wrong(
    name: str, call: str, trouble: str, tmp_path: Path, monkeypatch: Patch
) -> None:
    """What is recorded is sound, and `--resume` measures the rest."""
    kind, script = KINDS[name], new_script(name, tmp_path)
    script.faults = {call: TROUBLES[trouble](script)}
    ended = play(script, kind, tmp_path, monkeypatch)
    result = read(tmp_path / "run")
    assert not script.unused
    check_run(script, kind, result, ended)
    if ended in ("complete", "incomplete"):
        assert (ended == "complete") == (not result.failures)
        # A planned row that is not measured has a failure of its own or of its launch; where sides
        # are measured together, of one of them.
        failures = [failure for failure in result.failures if failure.key is None or kind.together]
        explained = {*keys_of(result.trials), *keys_of(result.failures)}
        rounds = {failure.round for failure in failures}
        assert all(row.key in explained or row.round in rounds for row in result.run.plan)
    else:
        stops = {"full": "StoreError", "ctrl-c": "KeyboardInterrupt"}
        assert ended == stops.get(trouble, "LoadInterrupted") or trouble.startswith("interrupted")
    if kind.resumable:
        script = new_script(name, tmp_path)
        assert play(script, kind, tmp_path, monkeypatch) == "complete"
        result = read(tmp_path / "run")
        check_run(script, kind, result, "complete")
        assert {trial.key for trial in result.run.plan} <= {trial.key for trial in result.trials}


@cases("trouble", "broken", "killed")
def test_a_load_given_up(trouble: str, tmp_path: Path, monkeypatch: Patch) -> None:
    script = new_script("micro", tmp_path)
    script.faults = {"load 2": TROUBLES[trouble](script)}
    play(script, KINDS["micro"], tmp_path, monkeypatch)
    result = read(tmp_path / "run")
    lost = result.failures[0]
    assert lost.message.startswith("the load was given up")
    assert lost.key is not None and lost.key not in keys_of(result.trials)


@cases("fault, left", ("start 2", "default haproxy"), ("deploy 2", "default haproxy"))
def test_a_side_that_is_not_up(fault: str, left: str, tmp_path: Path, monkeypatch: Patch) -> None:
    script = new_script("versus-sides", tmp_path)
    script.faults = {fault: TROUBLES["fails"](script)}
    assert play(script, KINDS["versus-sides"], tmp_path, monkeypatch) == "incomplete"
    result = read(tmp_path / "run")
    trials = [trial.variant for trial in result.trials if trial.round == 1]
    assert trials[: len(left.split())] == left.split()
    assert {trial.variant for trial in result.trials if trial.round == 2} >= {"optimized"}


@cases("name", "micro", "versus", "tax", "rpc", "scale-attached")
def test_leftovers_are_failures(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    script = new_script(name, tmp_path)
    script.leftovers = ("raylet 9",)
    assert play(script, KINDS[name], tmp_path, monkeypatch) == "incomplete"
    result = read(tmp_path / "run")
    assert {failure.what for failure in result.failures} == {"teardown"}
    assert len(result.failures) == len(result.teardowns) == len(result.launches)
    assert {teardown.leftovers for teardown in result.teardowns} == {("raylet 9",)}


def check_run(script: Script, kind: Kind, result: Result, ended: str) -> None:
    """Check that launches are closed once, rows planned and measured once, progress recorded."""
    assert {*script.opened} <= {*script.closed}
    assert len(script.closed) == len({*script.closed})
    measured = keys_of(result.trials)
    recorded = {*measured, *keys_of(result.failures)}
    assert ended == "StoreError" or {*keys_of(script.records)} <= recorded
    assert len(measured) == len({*measured})
    assert kind.ladder or {*measured} <= {*keys_of(result.run.plan)}
    numbers = [step.number for step in script.steps]
    assert numbers == sorted(numbers)
    assert all(0 <= step.number <= step.of and step.left_s >= 0 for step in script.steps)


def keys_of(records: Iterable[Any]) -> list[str]:
    """Keys, and what else tells records without one apart."""
    return [record.key or f"{record.what}: {record.message}" for record in records]


def main() -> None:
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as monkeypatch:
        for name in KINDS:
            (Path(place) / name).mkdir()
            story = tell_story(name, Path(place) / name, monkeypatch)
            (STORIES / f"{name}.txt").write_text(story, encoding="utf-8")


if __name__ == "__main__":
    main()
