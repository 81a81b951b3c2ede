"""What `serve-bench rpc` is asked for: one swept argument, bad values in one line, the plan."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from serve_bench.benchmarks.rpc import spec
from serve_bench.core.content import Content
from serve_bench.core.plan import list_trials
from serve_bench.core.schema import built
from serve_bench.store.files import read_toml, suite_file
from tests import places
from tests.cases import cases, refusal

REFERENCE = places.TOP / "serve_bench" / "reference" / "torch_rpc.json"
SHIPPED = read_toml(suite_file("rpc"))
WORLD = spec.World(10, True, "10-20-10", 5, 10, "cpu", 1)


def with_flags(**flags: str) -> spec.RpcSpec:
    return spec.read_rpc(Content("f.toml", SHIPPED), flags)


def refuse(data: Mapping[str, Any] = SHIPPED, /, **flags: str) -> str:
    return refusal(spec.read_rpc, Content("f.toml", data), flags)


def suite_of(**given: Any) -> spec.RpcSpec:
    return spec.RpcSpec(**{"backend": ("torch", "ray"), "world_size": (2, 3, 4), **given})


def test_the_published_arguments_are_in_the_shipped_suite() -> None:
    published = json.loads(REFERENCE.read_text(encoding="utf-8"))["arguments"]
    assert list(published) == list(spec.PUBLISHED_ARGUMENTS)
    table = SHIPPED["rpc"]
    assert set(spec.RpcSpec.options()) - {"seconds", "policy_ms"} == set(table)
    assert with_flags() == spec.RpcSpec()
    here = {name: str(table[name]) for name in spec.PUBLISHED_ARGUMENTS if name in table}
    differs = {name for name in here if here[name].lower() != published[name].lower()}
    assert differs == {"world_size"}  # 80 processes are not for everyone's first try


LISTED: dict[str, tuple[str, list[Any], list[str]]] = {
    "world_size": ("10, 50,100", [10, 50, 100], ["10", "50", "100"]),
    "batch": ("True,False", [True, False], ["True", "False"]),
    "state_size": ("4,10-20-10", ["4", "10-20-10"], ["4", "10-20-10"]),
    "nlayers": ("1,5", [1, 5], ["1", "5"]),
    "out_features": ("10,2", [10, 2], ["10", "2"]),
    "device": ("cpu,cuda", ["cpu", "cuda"], ["cpu", "cuda"]),
    "threads": ("1,2", [1, 2], ["1", "2"]),
}


@pytest.mark.parametrize("name", spec.LISTS)
def test_any_one_argument_may_be_a_list_and_is_the_x_axis(name: str) -> None:
    text, values, points = LISTED[name]
    suite = with_flags(**{name: text})
    assert suite.x_axis == name
    assert [getattr(world, name) for world in suite.worlds] == values
    assert [spec.x_of(asdict(world), name) for world in suite.worlds] == points
    assert {replace(world, **{name: values[0]}) for world in suite.worlds} == {suite.worlds[0]}


@cases("value, texts", (True, "True true TRUE yes t Y 1"), (False, "False false no F n 0"))
def test_batch_has_many_spellings(value: bool, texts: str) -> None:
    assert {with_flags(batch=text).worlds[0].batch for text in texts.split()} == {value}


@cases(
    "text, many",
    ("0", "0"),
    ("10-0-10", "0"),
    ("100000-1001", "100,100,000"),
    ("-".join(["999999999"] * 600), "10^18 or more"),
    ids=["0", "10-0-10", "large", "long"],
)
def test_a_state_of_nothing_or_too_much_is_refused(text: str, many: str) -> None:
    said = f"makes a state of {many} numbers; it takes 1 to 100,000,000"
    assert refuse(state_size=text) == f"--state-size: {text} {said}"


def test_flags_are_read_and_seconds_without_episodes_end_a_world_alone() -> None:
    suite = with_flags(backend="serve, torch,ray", steps="7", seconds=" 0.5")
    assert (suite.backend, suite.steps) == (("serve", "torch", "ray"), 7)
    assert (suite.seconds, suite.episodes) == (0.5, spec.MOST_EPISODES)
    assert with_flags(seconds="2", episodes="7").episodes == 7
    # Without a list the x axis is the world size.
    suite = with_flags()
    assert (suite.worlds, suite.x_axis) == ((WORLD,), "world_size")
    assert (WORLD.observers, WORLD.batch_size) == (9, 9)
    assert replace(WORLD, batch=False).batch_size == 1


def keys_of(suite: spec.RpcSpec, *done: str) -> list[list[str]]:
    return [[planned.key for planned in list_trials([launch])] for launch in suite.plan(done)]


def test_backends_alternate_within_a_round_and_each_measures_every_world() -> None:
    suite = suite_of(launches=3)
    plan = suite.plan()
    assert [(launch.variant.name, launch.round) for launch in plan] == [
        (backend, round_) for round_ in (1, 2, 3) for backend in ("torch", "ray")
    ]
    for launch in plan:
        worlds = [built(spec.World, cell, "cell") for cell, _ in launch.cells]
        assert set(worlds) == set(suite.worlds) and len(worlds) == 3
        for world, (cell, (planned,)) in zip(worlds, launch.cells, strict=True):
            assert planned.cell == cell == asdict(world) and planned.round == launch.round
            assert planned.variant == launch.variant.name
            assert planned.row.connections == world.observers == world.world_size - 1
    assert len(list_trials(plan)) == 18


def test_keys_are_unique_and_what_is_done_is_left_out() -> None:
    suite = suite_of(batch=(True, False), launches=2)
    keys = [key for launch in keys_of(suite) for key in launch]
    assert len(keys) == len(set(keys)) == 2 * 2 * 6
    # Another time of the fixed policy is another cell: it must not be taken for the same.
    policies = [keys_of(suite_of(policy_ms=ms)) for ms in (None, 20.0, 30.0)]
    assert len({key for launches in policies for key in (*launches[0], *launches[1])}) == 3 * 6
    first, second, *others = keys_of(suite)
    assert keys_of(suite, first[1]) == [[first[0], *first[2:]], second, *others]
    assert keys_of(suite, *first, *second) == others  # a launch without rest too
    assert suite.plan(keys) == ()
