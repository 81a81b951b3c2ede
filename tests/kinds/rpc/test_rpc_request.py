"""What `serve-bench rpc` is asked for: one swept argument, bad values in one line, the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from serve_bench.benchmarks.rpc.request import (
    KEYS,
    LISTS,
    MOST_EPISODES,
    OPTIONAL,
    PUBLISHED_ARGUMENTS,
    RpcSuite,
    World,
    read_rpc,
    rpc_plan,
    x_of,
)
from serve_bench.core.plan import LaunchPlan, list_trials
from serve_bench.store.files import read_toml, suite_file
from tests import places
from tests.cases import cases
from tests.refused import refusal

REFERENCE = places.TOP / "serve_bench" / "reference" / "torch_rpc.json"
SHIPPED = read_toml(suite_file("rpc"))
WORLD = World(10, True, (10, 20, 10), 5, 10, "cpu", 1)


def with_flags(**flags: str) -> RpcSuite:
    return read_rpc(SHIPPED, "f.toml", flags)


def refuse(data: Mapping[str, Any] = SHIPPED, /, **flags: str) -> str:
    return refusal(read_rpc, data, "f.toml", flags)


def suite_of(**given: Any) -> RpcSuite:
    worlds = tuple(replace(WORLD, world_size=size) for size in (2, 3, 4))
    asked = {"backends": ("torch", "ray"), "worlds": worlds, "x_axis": "world_size"}
    return RpcSuite(**{**asked, "master_addr": "127.0.0.1", "master_port": 0, **given})


def test_the_published_arguments_are_those_of_the_reference_and_the_shipped_suite_has_them() -> (
    None
):
    published = json.loads(REFERENCE.read_text(encoding="utf-8"))["arguments"]
    assert list(published) == list(PUBLISHED_ARGUMENTS)
    table = SHIPPED["rpc"]
    assert set(KEYS) - set(OPTIONAL) == set(table)
    here = {name: str(table[name]) for name in PUBLISHED_ARGUMENTS if name in table}
    differs = {name for name in here if here[name].lower() != published[name].lower()}
    assert differs == {"world_size"}  # 80 processes are not for everyone's first try


def test_without_a_list_the_x_axis_is_the_world_size() -> None:
    suite = with_flags()
    assert (suite.worlds, suite.x_axis) == ((WORLD,), "world_size")
    assert (WORLD.observers, WORLD.batch_size) == (9, 9)
    assert replace(WORLD, batch=False).batch_size == 1


LISTED: dict[str, tuple[str, list[Any], list[str]]] = {
    "world_size": ("10, 50,100", [10, 50, 100], ["10", "50", "100"]),
    "batch": ("True,False", [True, False], ["True", "False"]),
    "state_size": ("4,10-20-10", [(4,), (10, 20, 10)], ["4", "10-20-10"]),
    "nlayers": ("1,5", [1, 5], ["1", "5"]),
    "out_features": ("10,2", [10, 2], ["10", "2"]),
    "device": ("cpu,cuda", ["cpu", "cuda"], ["cpu", "cuda"]),
    "threads": ("1,2", [1, 2], ["1", "2"]),
}


@pytest.mark.parametrize("name", LISTS)
def test_any_one_argument_may_be_a_list_and_is_the_x_axis(name: str) -> None:
    text, values, points = LISTED[name]
    suite = with_flags(**{name: text})
    assert suite.x_axis == name
    assert [getattr(world, name) for world in suite.worlds] == values
    assert [x_of(world.cell, name) for world in suite.worlds] == points
    assert {replace(world, **{name: values[0]}) for world in suite.worlds} == {suite.worlds[0]}


@cases("value, texts", (True, "True true TRUE yes t Y 1"), (False, "False false no F n 0"))
def test_batch_has_many_spellings(value: bool, texts: str) -> None:
    assert {with_flags(batch=text).worlds[0].batch for text in texts.split()} == {value}


@cases(
    "name, texts, takes",
    ("world_size", "1", "a whole number from 2 to 4,096: one agent, and at least one observer"),
    ("world_size", "4097 x", "a whole number from 2 to 4,096"),
    ("batch", "maybe", "True or False"),
    ("state_size", "10-x 10--10 -10", "whole numbers joined by -, such as 10-20-10"),
    ("nlayers", "0", "a whole number from 1 to 1,000"),
    ("out_features", "10001", "a whole number from 1 to 10,000"),
    ("device", "tpu", "auto, cpu or cuda"),
    ("threads", "0", "a whole number from 1 to 1,024"),
    ("master_port", "70000 x", "a whole number from 0 to 65,535"),
    ("episodes", "0", "a whole number from 1 to 1,000,000"),
    ("steps", "0 1000001 7.0 x nan 1_0 \u0663", "a whole number from 1 to 1,000,000"),
    ("steps", "9" * 5000, "a whole number from 1 to 1,000,000"),
    ("seconds", "0 nan inf -inf 1s", "a number from 0.1 to 86,400"),
    ("timeout_s", "inf", "a number from 0.1 to 86,400"),
    ("launches", "0", "a whole number from 1 to 1,000"),
    ("policy_ms", "-1", "a number from 0 to 60,000"),
    ("seed", "-1", "a whole number from 0"),
    ("backend", "mpi", "torch, ray or serve"),
)
def test_a_bad_value_is_named_with_its_flag_and_what_it_takes(
    name: str, texts: str, takes: str
) -> None:
    flag = f"--{name.replace('_', '-')}"
    for text in texts.split():
        said = f"{flag}: {text!r} is not allowed; it takes {takes}"
        assert refuse(**{name: text}).startswith(said)
        if name in LISTS:
            listed = f"{text},{LISTED[name][0].rpartition(',')[2]}"
            assert refuse(**{name: listed}).startswith(said)
    assert refuse(**{name: ""}).startswith(f"{flag}: '' is not allowed; it takes ")


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


@cases(
    "name, text, twice",
    ("world_size", "3,4,3", "3"),
    ("batch", "True,t", "t"),
    ("state_size", "4-5,04-5", "04-5"),
    ("backend", "ray,torch,ray", "ray"),
)
def test_a_point_and_a_backend_stand_once(name: str, text: str, twice: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    assert refuse(**{name: text}) == f"{flag}: {twice} stands there twice"


def test_flags_are_read_and_seconds_without_episodes_end_a_world_alone() -> None:
    suite = with_flags(backend="serve, torch,ray", steps="7", seconds=" 0.5")
    assert (suite.backends, suite.steps) == (("serve", "torch", "ray"), 7)
    assert (suite.seconds, suite.episodes) == (0.5, MOST_EPISODES)
    assert with_flags(seconds="2", episodes="7").episodes == 7


def table(**changed: Any) -> dict[str, Any]:
    """The shipped suite; a key that is None is left out."""
    rpc = {**SHIPPED["rpc"], **changed}
    return {"rpc": {name: value for name, value in rpc.items() if value is not None}}


def test_a_suite_file_writes_lists_and_values_as_toml_has_them() -> None:
    changed = {"batch": [True, False], "seconds": 2.5, "backend": ["torch", "ray"], "world_size": 3}
    suite = read_rpc(table(**changed), "f.toml", {})
    assert suite.backends == ("torch", "ray") and suite.seconds == 2.5
    worlds = tuple(replace(WORLD, world_size=3, batch=batch) for batch in (True, False))
    assert (suite.x_axis, suite.worlds) == ("batch", worlds)


@cases(
    "data, said",
    ({"load": {}}, "f.toml: unknown key 'load'"),
    ({"rpc": 3}, "f.toml: rpc: must be a table"),
    (table(wrld_size=3), "f.toml: rpc: unknown key 'wrld_size'; did you mean 'world_size'?"),
    (table(nlayers=None), "f.toml: rpc: nlayers is missing"),
    ({}, "f.toml: rpc: world_size is missing"),
    (table(world_size=10.5), "f.toml: rpc.world_size: '10.5' is not allowed; it takes "),
    (table(state_size=[10, "x"]), "f.toml: rpc.state_size: 'x' is not allowed; it takes "),
    (table(nlayers={"a": 1}), "f.toml: rpc.nlayers: "),
)
def test_a_suite_file_with_an_error_is_named_with_its_key(data: dict[str, Any], said: str) -> None:
    assert refuse(data).startswith(said)


def test_two_lists_are_named_with_their_places() -> None:
    said = refuse(table(batch=[True, False]), world_size="3,4")
    assert said.startswith("--world-size and f.toml: rpc.batch: only one argument may be a list")


def keys_of(suite: RpcSuite, *done: str) -> list[list[str]]:
    return [[planned.key for planned in list_trials([one])] for one in rpc_plan(suite, done)]


def worlds_of(launch: LaunchPlan) -> tuple[World, ...]:
    return tuple(World.from_cell(cell) for cell, _ in launch.cells)


def test_backends_alternate_within_a_round_and_each_measures_every_world() -> None:
    suite = suite_of(launches=3)
    plan = rpc_plan(suite)
    assert [(launch.variant.name, launch.round) for launch in plan] == [
        (backend, round_) for round_ in (1, 2, 3) for backend in ("torch", "ray")
    ]
    for launch in plan:
        worlds = worlds_of(launch)
        assert set(worlds) == set(suite.worlds) and len(worlds) == 3
        for world, (cell, (planned,)) in zip(worlds, launch.cells, strict=True):
            assert planned.cell == cell == world.cell and planned.round == launch.round
            assert planned.variant == launch.variant.name
            assert planned.row.connections == world.observers == world.world_size - 1
    assert len(list_trials(plan)) == 18


def test_later_rounds_draw_their_order_by_the_seed_alike_for_all_backends() -> None:
    sizes = tuple(replace(WORLD, world_size=size) for size in range(2, 12))
    suite = suite_of(worlds=sizes, launches=4)
    orders = [worlds_of(launch) for launch in rpc_plan(suite)]
    assert orders[0::2] == orders[1::2]
    assert len(set(orders)) == 4 and orders[0] == sizes  # the first as asked
    assert rpc_plan(suite) == rpc_plan(suite)
    assert rpc_plan(replace(suite, seed=2))[2:] != rpc_plan(suite)[2:]


def test_keys_are_unique_and_what_is_done_is_left_out() -> None:
    both = (*suite_of().worlds, *(replace(world, batch=False) for world in suite_of().worlds))
    suite = suite_of(worlds=both, launches=2)
    keys = [key for launch in keys_of(suite) for key in launch]
    assert len(keys) == len(set(keys)) == 2 * 2 * 6
    # Another time of the fixed policy is another cell: it must not be taken for the same.
    policies = [keys_of(suite_of(policy_ms=ms)) for ms in (None, 20.0, 30.0)]
    assert len({key for launches in policies for key in (*launches[0], *launches[1])}) == 3 * 6
    first, second, *others = keys_of(suite)
    assert keys_of(suite, first[1]) == [[first[0], *first[2:]], second, *others]
    assert keys_of(suite, *first, *second) == others  # a launch without rest too
    assert rpc_plan(suite, keys) == ()
