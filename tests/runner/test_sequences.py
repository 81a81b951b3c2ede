"""Each kind of run on fakes: the same sequence of calls, records and steps of progress as before.

The sequences are kept in sequences.txt. `python -m tests.runner.test_sequences` writes them anew:
a difference is a change of what a run records or tells, and has to be meant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from serve_bench.benchmarks.rpc.bench import plan_of as rpc_plan_of
from serve_bench.benchmarks.rpc.request import RpcSuite, World, rpc_plan
from serve_bench.benchmarks.scale.bench import plan_of as scale_plan_of
from serve_bench.benchmarks.scale.request import ScaleSuite, scale_plan
from serve_bench.benchmarks.tax.bench import TaxRun
from serve_bench.benchmarks.tax.request import LAYERS, TaxSuite, tax_plan
from serve_bench.benchmarks.versus.bench import Pairs
from serve_bench.benchmarks.versus.measure import chosen_of
from serve_bench.benchmarks.versus.request import Side, VersusSuite, versus_plan
from serve_bench.core.axes import cell_defaults
from serve_bench.core.errors import RunFailed
from serve_bench.core.ladder import Ladder
from serve_bench.core.load_result import Counts, LoadResult, SlicedResult, WorkerFailure
from serve_bench.core.load_spec import Timing
from serve_bench.core.plan import Suite, parse_row, plan
from serve_bench.core.request_spec import Request
from serve_bench.core.result import Row, Traffic
from serve_bench.core.suite import Overrides, read_suite
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.load import LoadError, LoadInterrupted
from serve_bench.runner.agenda import Agenda, rest_of
from serve_bench.runner.runner import Runner
from serve_bench.runner.served_bench import ServedClusters
from serve_bench.runner.url_bench import Service, UrlLadders
from serve_bench.serving.server import LaunchFailed
from serve_bench.store import RunFolder, StoreError, read
from tests.records import run as run_record
from tests.runner.fakes import (
    Looking,
    Script,
    full,
    install,
    interrupt_nodes,
    lose_node,
)
from tests.scale_records import scale_suite

KEPT: Final = Path(__file__).with_name("sequences.txt")

Make = Callable[[Script, RunFolder, bool], Any]
"""A runner in a folder; True: of what is missing there."""


@dataclass(frozen=True)
class Scenario:
    """A runner, and what happens to it. `faults` take the script where they change it."""

    make: Make
    faults: Callable[[Script], Mapping[str, Any]] = field(default=lambda script: {})
    leftovers: tuple[str, ...] = ()
    resumed: bool = False


# ------------------------------------------------------------------------------------ faults


def launch_failed(words: str = "it did not come up") -> LaunchFailed:
    return LaunchFailed(words, ("a line",), Path("logs/launch.log"))


ENDED = launch_failed("observer 22 ended")
REFUSED = LoadError("connect", "127.0.0.1", 1000, "refused")


def interrupt(result: LoadResult) -> LoadResult:
    raise LoadInterrupted(result)


def lose_worker(result: LoadResult) -> LoadResult:
    return replace(result, failures=(WorkerFailure(33, "killed", 5),))


def serve_nothing(result: LoadResult) -> LoadResult:
    nothing = Counts(100, 0, {"reset": 100}, 0)
    return replace(result, measured=nothing, total=nothing)


def silence_second(result: SlicedResult) -> SlicedResult:
    return replace(result, sides=(result.sides[0], serve_nothing(result.sides[1])))


def cut(result: LoadResult) -> LoadResult:
    some = Counts(100, 60, {}, 40)
    return replace(result, measured=some, in_windows=some)


# ------------------------------------------------------------------------------------- kinds


def served(
    variants: tuple[str, ...] = ("default",),
    each: int | None = None,
    profile: bool = False,
    inside: bool = False,
) -> Make:
    ladder = None if each is None else Ladder((1, 2, 4))

    def make(script: Script, folder: RunFolder, again: bool) -> Any:
        matrix: Any = {"num_replicas": (1, 2)} if each is None else {}
        flags = Overrides(
            variants=variants,
            clients=("8", "raw:100"),
            matrix=matrix,
            launches=1,
            windows=2,
            ladder=ladder,
            requests_per_client=each,
        )
        if each is not None:
            flags = replace(flags, clients=())
        suite: Suite = read_suite({}, "x", flags)
        agenda = Agenda(suite, plan(suite), profile)
        every = [at for one in plan(suite) for _, trials in one.cells for at in trials]
        if again:
            agenda = rest_of(read(folder.path), suite, profile)
        else:
            folder.append(run_record(*every))

        def after_cell(serving: object, trials: Any) -> None:
            script.note(f"after cell, {len(trials)} trials")

        looking: Any = Looking(script) if inside or profile else None
        every_one = ServedClusters(
            agenda, "abc123", folder.path, after_cell=after_cell, inside=looking
        )
        return Runner(every_one.plan(), folder, script, first_launch=5 if again else 1)

    return make


def url(each: int | None = None) -> Make:
    def make(script: Script, folder: RunFolder, again: bool) -> Any:
        services = tuple(Service(one, Request(f"http://{one}:1/")) for one in ("a", "b"))
        folder.append(run_record())
        timing = Timing(1.0, 5.0, 3, 1.0)
        ladders = UrlLadders(services, Ladder((1, 2, 4)), timing, folder.path, "abc123", each=each)
        return Runner(ladders.plan(), folder, script)

    return make


SIDES = (Side("default"), Side("optimized", BUILT_IN_VARIANTS["optimized"]))
OTHER = Side("optimized", replace(BUILT_IN_VARIANTS["optimized"], python="other/python"))


ROWS = (parse_row("raw:100", Traffic(), "x"), parse_row("8", Traffic(), "x"))
OPEN = (replace(ROWS[0], loop="open", rate_per_s=50.0),)


def versus(
    cells: int = 1,
    urls: bool = False,
    sides: tuple[Side, Side] = SIDES,
    rows: tuple[Row, ...] = ROWS,
) -> Make:
    def make(script: Script, folder: RunFolder, again: bool) -> Any:
        suite = VersusSuite(
            "mine",
            sides,
            tuple({**cell_defaults(), "num_replicas": 1 + at} for at in range(cells)),
            rows,
            rounds=2,
            side_s=0.1,
            urls={"default": "http://a/", "optimized": "http://b/"} if urls else None,
            sample=False,
        )
        every = [one for at in versus_plan(suite) for one in at.pairings]
        done: list[str] = []
        chosen: Any = {}
        if again:
            earlier = read(folder.path)
            done, chosen = [one.key for one in earlier.trials], chosen_of(every, earlier.trials)
        else:
            folder.append(run_record(*(one for at in every for one in at.planned)))
        services = tuple(Service(one, Request(f"http://{one}:1/")) for one in ("a", "b"))
        pairs = Pairs(
            suite,
            versus_plan(suite, done),
            folder.path,
            "abc123",
            (services[0], services[1]) if urls else None,
            chosen,
        )
        return Runner(pairs.plan(), folder, script, first_launch=5 if again else 1)

    return make


def tax() -> Make:
    def make(script: Script, folder: RunFolder, again: bool) -> Any:
        cells, sides = (cell_defaults(),), (SIDES[0], SIDES[0])
        versus = VersusSuite(
            *("mine", sides, cells, ROWS[:1]),
            rounds=2,
            side_s=0.1,
            sample=False,
        )
        suite = TaxSuite(versus, (LAYERS[0], *LAYERS[2:5]))
        rows = [row for one in tax_plan(suite) for row in one.rows]
        parts = [part for row in rows for part in row.parts]
        done: list[str] = []
        chosen: Any = {}
        if again:
            earlier = read(folder.path)
            done, chosen = [one.key for one in earlier.trials], chosen_of(parts, earlier.trials)
        else:
            folder.append(run_record(*(one for part in parts for one in part.planned)))
        launches = TaxRun(suite, tax_plan(suite, done), folder.path, "abc123", chosen).plan()
        return Runner(launches, folder, script, first_launch=5 if again else 1)

    return make


def rpc(sample: bool = False) -> Make:
    def make(script: Script, folder: RunFolder, again: bool) -> Any:
        worlds = tuple(World(size, True, (10,), 1, 10, "cpu", 1) for size in (2, 3))
        suite = RpcSuite(
            ("torch", "ray"), worlds, "world_size", "localhost", 29500, episodes=2, sample=sample
        )
        done: list[str] = []
        if again:
            earlier = read(folder.path)
            doubted = {one.key for one in earlier.failures}
            done = [one.key for one in earlier.trials if one.key not in doubted]
        else:
            folder.append(run_record(*(at for one in rpc_plan(suite) for _, at in one.worlds)))
        first = 5 if again else 1
        launches = rpc_plan_of(suite, rpc_plan(suite, done), folder.path, "abc123")
        return Runner(launches, folder, script, first_launch=first)

    return make


def scale(workload: Any = "single", **other: Any) -> Make:
    def make(script: Script, folder: RunFolder, again: bool) -> Any:
        suite: ScaleSuite = scale_suite(workload, **{"launches": 2, "size": 2, **other})
        done: list[str] = []
        if again:
            done = [one.key for one in read(folder.path).trials]
        else:
            every = [at for one in scale_plan(suite) for cell in one.cells for at in cell.rows]
            folder.append(run_record(*every))
        first = 5 if again else 1
        sizes = scale_plan_of(suite, scale_plan(suite, done), folder.path, "abc123")
        return Runner(sizes, folder, script, first_launch=first)

    return make


BOTH: Final = ("default", "optimized")
CURVE: Final = {"replicas": (1, 2), "launches": 1}
ATTACHED: Final = {"address": "10.0.0.1:6379", "variants": ("as-it-is",)}

SCENARIOS: Final[Mapping[str, Scenario]] = {
    "served": Scenario(served(BOTH)),
    "served, looked inside": Scenario(served(inside=True)),
    "served, profiled": Scenario(served(profile=True)),
    "served, a profiled load fails": Scenario(
        served(profile=True), lambda _: {"load 3": REFUSED, "load 5": lose_worker}
    ),
    "served, a launch fails": Scenario(served(BOTH), lambda _: {"start 1": launch_failed()}),
    "served, no Ray": Scenario(served(BOTH), lambda _: {"import 1": launch_failed("no ray")}),
    "served, the first deploy fails": Scenario(
        served(BOTH), lambda _: {"deploy 1": launch_failed()}
    ),
    "served, a later deploy fails": Scenario(served(), lambda _: {"deploy 2": launch_failed()}),
    "served, a deploy kills": Scenario(
        served(BOTH), lambda script: {"deploy 2": lambda _: _die(script)}
    ),
    "served, the proof fails": Scenario(served(BOTH), lambda _: {"prove 1": launch_failed()}),
    "served, a load fails": Scenario(served(), lambda _: {"load 2": REFUSED}),
    "served, a load fails and a part ended": Scenario(
        served(), lambda script: {"load 1": lambda _: _lose(script, REFUSED)}
    ),
    "served, a part ended": Scenario(
        served(), lambda script: {"load 1": script.lose("replica 7 ended")}
    ),
    "served, a part ended and is not replaced": Scenario(
        served(),
        lambda script: {"load 1": script.lose("replica 7 ended"), "deploy 2": launch_failed()},
    ),
    "served, a part ended with the last row": Scenario(
        served(), lambda script: {"load 4": script.lose("replica 7 ended")}
    ),
    "served, a worker is lost": Scenario(served(), lambda _: {"load 1": lose_worker}),
    "served, nothing is answered": Scenario(served(), lambda _: {"load 1": serve_nothing}),
    "served, the cluster ends": Scenario(served(BOTH), lambda script: {"load 2": script.kill}),
    "served, the cluster is broken": Scenario(
        served(BOTH), lambda script: {"load 2": script.lose("gcs 3 ended", broken="gcs 3 ended")}
    ),
    "served, Ctrl-C in a row": Scenario(served(), lambda _: {"load 2": interrupt}),
    "served, Ctrl-C before a row": Scenario(served(), lambda _: {"load 2": KeyboardInterrupt()}),
    "served, Ctrl-C in a launch": Scenario(served(), lambda _: {"start 1": KeyboardInterrupt()}),
    "served, Ctrl-C in a look": Scenario(
        served(inside=True), lambda _: {"look 1": KeyboardInterrupt()}
    ),
    "served, Ctrl-C behind a load": Scenario(
        served(inside=True), lambda _: {"looked 1": KeyboardInterrupt()}
    ),
    "served, Ctrl-C ends the cluster": Scenario(
        served(), lambda script: {"load 2": lambda found: interrupt(script.kill(found))}
    ),
    "served, a look fails": Scenario(served(inside=True), lambda _: {"look 1": launch_failed()}),
    "served, the disk is full": Scenario(served(), lambda _: {"append-trial 2": full}),
    "served, something is left": Scenario(served(), leftovers=("raylet 9",)),
    "served, resumed": Scenario(served(), lambda _: {"load 2": interrupt}, resumed=True),
    "served, profiles resumed": Scenario(
        served(profile=True), lambda _: {"load 4": interrupt}, resumed=True
    ),
    "press": Scenario(served(each=10)),
    "press, a row is cut": Scenario(served(each=10), lambda _: {"load 2": cut}),
    "press, settling fails": Scenario(served(each=10), lambda _: {"load 1": REFUSED}),
    "press, Ctrl-C in settling": Scenario(
        served(each=10), lambda _: {"load 1": KeyboardInterrupt()}
    ),
    "press, Ctrl-C in a row": Scenario(
        served(each=10), lambda _: {"load 3": interrupt}, resumed=True
    ),
    "url": Scenario(url()),
    "url, a load fails": Scenario(url(), lambda _: {"load 2": REFUSED}),
    "url, a worker is lost": Scenario(url(), lambda _: {"load 1": lose_worker}),
    "url, nothing is answered": Scenario(url(), lambda _: {"load 1": serve_nothing}),
    "url, samples are not kept": Scenario(url(), lambda _: {"samples 1": full}),
    "url, Ctrl-C": Scenario(url(), lambda _: {"load 4": interrupt}),
    "url, Ctrl-C before a row": Scenario(url(), lambda _: {"load 4": KeyboardInterrupt()}),
    "url, the disk is full": Scenario(url(), lambda _: {"append-trial 1": full}),
    "url, requests of each": Scenario(url(each=10)),
    "url, a row is cut": Scenario(url(each=10), lambda _: {"load 3": cut}),
    "url, settling fails": Scenario(url(each=10), lambda _: {"load 1": REFUSED}),
    "versus": Scenario(versus(cells=2)),
    "versus, a launch fails": Scenario(versus(), lambda _: {"start 1": launch_failed()}),
    "versus, the other side does not start": Scenario(
        versus(), lambda _: {"start 2": launch_failed()}
    ),
    "versus, no Ray": Scenario(
        versus(sides=(SIDES[0], OTHER)), lambda _: {"import 2": launch_failed("no ray")}
    ),
    "versus, the first deploy fails": Scenario(versus(), lambda _: {"prove 1": launch_failed()}),
    "versus, a later deploy fails": Scenario(
        versus(cells=2), lambda _: {"deploy 3": launch_failed(), "deploy 4": launch_failed()}
    ),
    "versus, a load fails": Scenario(versus(), lambda _: {"slices 2": lambda _: _raise(REFUSED)}),
    "versus, a side is not answered": Scenario(versus(), lambda _: {"slices 2": silence_second}),
    "versus of an open loop": Scenario(versus(rows=OPEN)),
    "versus, a part ended": Scenario(
        versus(), lambda script: {"slices 2": script.lose("replica 7 ended")}
    ),
    "versus, a load fails and a part ended": Scenario(
        versus(), lambda script: {"slices 2": lambda _: _lose(script, REFUSED)}
    ),
    "versus, a cluster ends": Scenario(versus(), lambda script: {"slices 2": script.kill}),
    "versus, Ctrl-C in a row": Scenario(
        versus(), lambda _: {"slices 2": KeyboardInterrupt()}, resumed=True
    ),
    "versus, Ctrl-C in a launch": Scenario(versus(), lambda _: {"begin 2": KeyboardInterrupt()}),
    "versus, the disk is full": Scenario(versus(), lambda _: {"append-trial 2": full}),
    "versus, the end is not recorded": Scenario(versus(), lambda _: {"append-teardown 1": full}),
    "versus, something is left": Scenario(versus(), leftovers=("raylet 9",)),
    "versus of services": Scenario(versus(urls=True)),
    "versus of services, a load fails": Scenario(
        versus(urls=True), lambda _: {"load 3": LoadError("connect", "b", 1, "refused")}
    ),
    "versus of services, Ctrl-C": Scenario(
        versus(urls=True), lambda _: {"slices 2": KeyboardInterrupt()}
    ),
    "tax": Scenario(tax()),
    "tax, a bare server fails": Scenario(tax(), lambda _: {"bare 1": launch_failed()}),
    "tax, a cluster fails": Scenario(tax(), lambda _: {"start 1": launch_failed()}),
    "tax, a load fails": Scenario(tax(), lambda _: {"slices 2": lambda _: _raise(REFUSED)}),
    "tax, a part ended": Scenario(
        tax(), lambda script: {"slices 2": script.lose("replica 7 ended")}
    ),
    "tax, Ctrl-C in a row": Scenario(
        tax(), lambda _: {"slices 3": KeyboardInterrupt()}, resumed=True
    ),
    "tax, something is left": Scenario(tax(), leftovers=("uvicorn 9",)),
    "rpc": Scenario(rpc(sample=True)),
    "rpc, a launch fails": Scenario(rpc(), lambda _: {"start 1": ENDED}),
    "rpc, a world fails": Scenario(rpc(), lambda _: {"world 1": ENDED}),
    "rpc, a world kills": Scenario(
        rpc(), lambda script: {"world 1": lambda _: _raise(ENDED, script)}
    ),
    "rpc, a warm-up fails": Scenario(rpc(), lambda _: {"episode 2": ENDED}),
    "rpc, an episode fails": Scenario(rpc(), lambda _: {"episode 4": ENDED}),
    "rpc, the program ends": Scenario(
        rpc(), lambda script: {"episode 4": lambda _: _raise(ENDED, script)}
    ),
    "rpc, a world does not end": Scenario(rpc(), lambda _: {"end 1": ENDED}),
    "rpc, Ctrl-C in a warm-up": Scenario(rpc(), lambda _: {"episode 1": KeyboardInterrupt()}),
    "rpc, Ctrl-C in an episode": Scenario(
        rpc(), lambda _: {"episode 4": KeyboardInterrupt()}, resumed=True
    ),
    "rpc, samples are not kept": Scenario(rpc(sample=True), lambda _: {"samples 1": full}),
    "rpc, the disk is full": Scenario(rpc(), lambda _: {"append-trial 2": full}),
    "rpc, something is left": Scenario(rpc(), leftovers=("agent 9",)),
    "scale": Scenario(scale()),
    "scale by wrk's place, curve": Scenario(scale("curve", **CURVE)),
    "scale of a graph": Scenario(scale("ensemble", launches=1)),
    "scale, attached": Scenario(scale("curve", **CURVE, **ATTACHED)),
    "scale, too little memory there": Scenario(scale("curve", replicas=(1000,), **ATTACHED)),
    "scale, a launch fails": Scenario(scale(), lambda _: {"start 1": launch_failed()}),
    "scale, a size does not come up": Scenario(
        scale("curve", **CURVE), lambda _: {"put 1": launch_failed()}
    ),
    "scale, a size kills": Scenario(
        scale("curve", **CURVE), lambda script: {"put 2": lambda _: _die(script)}
    ),
    "scale, the proof fails": Scenario(scale(), lambda _: {"prove 1": launch_failed()}),
    "scale, a load fails": Scenario(scale(), lambda _: {"load 1": RunFailed("no proxy")}),
    "scale, no actors": Scenario(scale(), lambda _: {"crew 1": RunFailed("no actor")}),
    "scale, a graph's load fails": Scenario(
        scale("chain", launches=1), lambda _: {"handle_load 1": launch_failed(), "load 2": REFUSED}
    ),
    "scale, a node is lost": Scenario(scale(), lambda _: {"nodes 1": lose_node}),
    "scale, a part ended": Scenario(
        scale(), lambda script: {"nodes 1": script.lose("replica 7 ended")}
    ),
    "scale, the cluster is broken": Scenario(
        scale("curve", **CURVE),
        lambda script: {"nodes 1": script.lose("gcs 3 ended", broken="gcs 3 ended")},
    ),
    "scale, the cluster ends": Scenario(
        scale("ensemble", launches=2),
        lambda script: {"load 1": lambda _: _raise(REFUSED, script)},
    ),
    "scale, nothing is answered": Scenario(
        scale("chain", launches=1), lambda _: {"load 1": serve_nothing}
    ),
    "scale, removing fails": Scenario(
        scale("curve", **CURVE), lambda _: {"remove 1": launch_failed()}
    ),
    "scale, Ctrl-C in a row": Scenario(
        scale("curve", **CURVE), lambda _: {"nodes 2": interrupt_nodes}, resumed=True
    ),
    "scale, Ctrl-C in a graph": Scenario(
        scale("chain", launches=1), lambda _: {"load 1": interrupt}
    ),
    "scale, Ctrl-C in a launch": Scenario(scale(), lambda _: {"put 1": KeyboardInterrupt()}),
    "scale, samples are not kept": Scenario(scale(), lambda _: {"samples 1": full}),
    "scale, the disk is full": Scenario(scale(), lambda _: {"append-trial 1": full}),
    "scale, something is left": Scenario(scale(**ATTACHED), leftovers=("app serve_bench_single",)),
}


def _raise(error: BaseException, script: Script | None = None) -> Any:
    if script is not None:
        script.dead = True
    raise error


def _die(script: Script) -> Any:
    return _raise(launch_failed("the driver ended"), script)


def _lose(script: Script, error: BaseException) -> Any:
    script.gone = ["replica 7 ended"]
    raise error


# --------------------------------------------------------------------------------- the proof


def sequence(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes on in a scenario, an event a line."""
    scenario = SCENARIOS[name]
    versus_costs = {"load": 1.0, "begin": 1.0, "slices": 2.0, "close": 1.0}
    script = Script(leftovers=scenario.leftovers, folder=folder)
    script.faults = scenario.faults(script)
    if name.startswith(("versus", "tax")):  # whose launches and deploys go on in threads
        script.costs_s = versus_costs
    with monkeypatch.context() as patches:
        install(script, patches)
        with RunFolder.create(folder / "run", now=datetime.now(UTC)) as records:
            _work_off(scenario.make(script, records, False), script)
        assert not script.unused
        if scenario.resumed:
            script.faults, script.dead = {}, False
            script.note("resumed")
            records, _ = RunFolder.resume(folder / "run")
            with records:
                _work_off(scenario.make(script, records, True), script)
    return script.events


def _work_off(runner: Any, script: Script) -> None:
    try:
        ok = runner.run()
        script.note(f"ended {ok}, failed {runner.failed}")
    except (KeyboardInterrupt, StoreError) as error:
        script.note(f"ended by {type(error).__name__}, failed {runner.failed}")


def kept() -> dict[str, list[str]]:
    """The sequences as they are kept, by the name of the scenario."""
    parts = KEPT.read_text(encoding="utf-8").split("\n## ")[1:]
    return {name: lines for name, *lines in (part.strip("\n").split("\n") for part in parts)}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_run_goes_on_as_it_did(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sequence(name, tmp_path, monkeypatch) == kept()[name]


def write(folder: Path) -> None:
    """Keeps all sequences as they are now."""
    text = "Sequences of runs on fakes; see test_sequences.py.\n"
    with pytest.MonkeyPatch.context() as patches:
        for number, name in enumerate(SCENARIOS):
            (folder / str(number)).mkdir()
            lines = sequence(name, folder / str(number), patches)
            text += "\n".join(["", f"## {name}", *lines, ""])
    KEPT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as place:
        write(Path(place))
