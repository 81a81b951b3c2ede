"""What `serve-bench rpc` is asked for: one swept argument, bad values in one line, the plan."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
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
from serve_bench.cli.sitting import whole_suite
from serve_bench.core.errors import BadInput
from serve_bench.store.files import read_toml, suite_file
from tests import places

REFERENCE = places.TOP / "serve_bench" / "reference" / "torch_rpc.json"
SHIPPED = read_toml(suite_file("rpc"))
WORLD = World(10, True, (10, 20, 10), 5, 10, "cpu", 1)


def with_flags(**flags: str) -> RpcSuite:
    return read_rpc(SHIPPED, "f.toml", flags)


def worlds_of(**flags: str) -> tuple[tuple[World, ...], str]:
    suite = with_flags(**flags)
    return suite.worlds, suite.x_axis


def refusal(data: Mapping[str, Any] = SHIPPED, /, **flags: str) -> str:
    with pytest.raises(BadInput) as refused:
        read_rpc(data, "f.toml", flags)
    assert "\n" not in str(refused.value)
    return str(refused.value)


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
    assert worlds_of() == ((WORLD,), "world_size")
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
    worlds, x_axis = worlds_of(**{name: text})
    assert x_axis == name
    assert [getattr(one, name) for one in worlds] == values
    assert [x_of(one.cell, x_axis) for one in worlds] == points
    assert {replace(one, **{name: values[0]}) for one in worlds} == {worlds[0]}


@pytest.mark.parametrize(
    ("value", "spellings"), [(True, "True true TRUE yes t Y 1"), (False, "False false no F n 0")]
)
def test_batch_has_many_spellings(value: bool, spellings: str) -> None:
    assert {worlds_of(batch=text)[0][0].batch for text in spellings.split()} == {value}


SIZES = "it takes whole numbers joined by -, such as 10-20-10"
BAD = [
    ("world_size", "1", "a whole number from 2 to 4,096: one agent, and at least one observer"),
    ("world_size", "4097", "a whole number from 2 to 4,096"),
    ("world_size", "x", "a whole number from 2 to 4,096"),
    ("batch", "maybe", "it takes True or False"),
    ("batch", "", "it takes True or False"),
    ("state_size", "10-x", SIZES),
    ("state_size", "10--10", SIZES),
    ("state_size", "-10", SIZES),
    ("state_size", "", SIZES),
    ("nlayers", "0", "a whole number from 1 to 1,000"),
    ("out_features", "10001", "a whole number from 1 to 10,000"),
    ("device", "tpu", "it takes auto, cpu or cuda"),
    ("threads", "0", "a whole number from 1 to 1,024"),
]
SCALARS = [
    ("master_port", "70000", "a whole number from 0 to 65,535"),
    ("master_port", "x", "a whole number from 0 to 65,535"),
    ("episodes", "0", "a whole number from 1 to 1,000,000"),
    ("timeout_s", "inf", "a number from 0.1 to 86,400"),
    ("launches", "0", "a whole number from 1 to 1,000"),
    ("policy_ms", "-1", "a number from 0 to 60,000"),
    ("seed", "-1", "a whole number from 0"),
    ("backend", "mpi", "torch, ray, serve"),
]


@pytest.mark.parametrize(("name", "text", "takes"), BAD, ids=[f"{a} {b[:9]}" for a, b, _ in BAD])
def test_a_bad_value_is_named_with_its_flag_and_what_it_takes(
    name: str, text: str, takes: str
) -> None:
    for value in {text, f"{text},{LISTED[name][0].rpartition(',')[2]}"}:
        said = refusal(**{name: value})
        flag = f"--{name.replace('_', '-')}"
        assert said.startswith(f"{flag}: {text[:30]!r} is not allowed; ") and takes in said


@pytest.mark.parametrize(("name", "text", "takes"), SCALARS)
def test_a_bad_number_is_named_with_its_flag_and_bounds(name: str, text: str, takes: str) -> None:
    said = f"--{name.replace('_', '-')}: {text!r} is not allowed; it takes {takes}"
    assert refusal(**{name: text}).startswith(said)


@pytest.mark.parametrize(
    ("text", "many"),
    [
        ("0", "0"),
        ("10-0-10", "0"),
        ("100000-1001", "100,100,000"),
        ("-".join(["999999999"] * 600), "10^18 or more"),
    ],
    ids=["0", "10-0-10", "large", "long"],
)
def test_a_state_of_nothing_or_too_much_is_refused(text: str, many: str) -> None:
    said = f"makes a state of {many} numbers; it takes 1 to 100,000,000"
    assert refusal(state_size=text) == f"--state-size: {text} {said}"


@pytest.mark.parametrize(
    ("name", "text", "twice"),
    [
        ("world_size", "3,4,3", "3"),
        ("batch", "True,t", "t"),
        ("state_size", "4-5,04-5", "04-5"),
        ("backend", "ray,torch,ray", "ray"),
    ],
)
def test_a_point_and_a_backend_stand_once(name: str, text: str, twice: str) -> None:
    flag = f"--{name.replace('_', '-')}"
    assert refusal(**{name: text}) == f"{flag}: {twice} stands there twice"


def test_flags_are_read_and_a_number_lies_within() -> None:
    assert with_flags(backend="serve, torch,ray").backends == ("serve", "torch", "ray")
    assert with_flags(steps="7").steps == 7 and with_flags(seconds=" 0.5").seconds == 0.5
    for text in ("0", "1000001", "7.0", "x", "", "nan", "1_0", "\u0663", "9" * 5000):
        takes = "is not allowed; it takes a whole number from 1 to 1,000,000"
        assert refusal(steps=text) == f"--steps: {text[:30]!r} {takes}"
    for text in ("0", "nan", "inf", "-inf", "1s"):
        takes = "is not allowed; it takes a number from 0.1 to 86,400"
        assert refusal(seconds=text) == f"--seconds: {text!r} {takes}"


def test_seconds_without_episodes_end_a_world_alone() -> None:
    assert with_flags(seconds="2").episodes == MOST_EPISODES
    assert with_flags(seconds="2", episodes="7").episodes == 7


def table(**changed: Any) -> dict[str, Any]:
    """The shipped suite; a key that is None is left out."""
    rpc = {**SHIPPED["rpc"], **changed}
    return {"rpc": {name: value for name, value in rpc.items() if value is not None}}


def test_a_suite_file_writes_lists_and_values_as_toml_has_them() -> None:
    text = """
        batch = [true, false]
        seconds = 2.5
        backend = ["torch", "ray"]
        world_size = 3
    """
    suite = read_rpc(table(**tomllib.loads(text)), "f.toml", {})
    assert suite.backends == ("torch", "ray") and suite.seconds == 2.5
    assert suite.x_axis == "batch" and suite.worlds == (
        replace(WORLD, world_size=3),
        replace(WORLD, world_size=3, batch=False),
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"load": {}}, "f.toml: unknown key 'load'"),
        ({"rpc": 3}, "f.toml: rpc: takes a table of arguments"),
        (table(wrld_size=3), "f.toml: rpc: unknown key 'wrld_size'; did you mean 'world_size'?"),
        (table(nlayers=None), "f.toml: rpc: nlayers is missing"),
        ({}, "f.toml: rpc: world_size is missing"),
        (table(world_size=10.5), "f.toml: rpc.world_size: '10.5' is not allowed; it takes "),
        (table(batch="x"), "f.toml: rpc.batch: 'x' is not allowed; it takes "),
        (table(state_size=[10, "x"]), "f.toml: rpc.state_size: 'x' is not allowed; it takes "),
        (table(nlayers={"a": 1}), "f.toml: rpc.nlayers: "),
    ],
)
def test_a_suite_file_with_an_error_is_named_with_its_key(data: dict[str, Any], said: str) -> None:
    assert refusal(data).startswith(said)


def test_a_suite_survives_its_json() -> None:
    asked = suite_of(seconds=2.5, policy_ms=20.0, output_file_path="x.json", sample=False, seed=7)
    for suite in (suite_of(), asked):
        assert RpcSuite.from_json(json.loads(json.dumps(suite.to_json()))) == suite


@pytest.mark.parametrize(
    "change",
    [
        {"worlds": None},
        {"worlds": [{"world_size": 3}]},
        {"worlds": [{**WORLD.cell, "state_size": "10-x"}]},
        {"backends": 3},
    ],
    ids=str,
)
def test_a_stored_suite_that_is_damaged_is_refused(change: dict[str, Any]) -> None:
    for damaged in ({**suite_of().to_json(), **change}, {}):
        with pytest.raises(BadInput, match=r"^the stored suite cannot be"), whole_suite():
            RpcSuite.from_json(damaged)


def keys_of(suite: RpcSuite, *done: str) -> list[list[str]]:
    return [[one.key for _, one in launch.worlds] for launch in rpc_plan(suite, done)]


def test_backends_alternate_within_a_round_and_each_measures_every_world() -> None:
    suite = suite_of(launches=3)
    plan = rpc_plan(suite)
    assert [(one.backend, one.round) for one in plan] == [
        (backend, round_) for round_ in (1, 2, 3) for backend in ("torch", "ray")
    ]
    for launch in plan:
        worlds = [world for world, _ in launch.worlds]
        assert set(worlds) == set(suite.worlds) and len(worlds) == 3
        for world, planned in launch.worlds:
            assert planned.cell == world.cell and planned.round == launch.round
            assert planned.variant == launch.backend
            assert planned.row.connections == world.observers == world.world_size - 1
    assert [world for world, _ in plan[0].worlds] == list(suite.worlds)  # the first as asked
    assert suite.loads == sum(len(one.worlds) for one in plan) == 18


def test_later_rounds_draw_their_order_by_the_seed_alike_for_all_backends() -> None:
    sizes = tuple(replace(WORLD, world_size=size) for size in range(2, 12))
    suite = suite_of(worlds=sizes, launches=4)
    orders = [tuple(world for world, _ in one.worlds) for one in rpc_plan(suite)]
    assert orders[0::2] == orders[1::2]
    assert len(set(orders)) == 4 and orders[0] == sizes
    assert rpc_plan(suite) == rpc_plan(suite)
    assert rpc_plan(replace(suite, seed=2))[2:] != rpc_plan(suite)[2:]


def test_keys_are_unique() -> None:
    both = (*suite_of().worlds, *(replace(one, batch=False) for one in suite_of().worlds))
    suite = suite_of(worlds=both, launches=2)
    keys = [key for launch in keys_of(suite) for key in launch]
    assert len(keys) == len(set(keys)) == 2 * 2 * 6
    # Another time of the fixed policy is another cell: it must not be taken for the same.
    slow, slower = suite_of(policy_ms=20.0), suite_of(policy_ms=30.0)
    others = {*chain(*keys_of(slower), *keys_of(suite))}
    assert not others & {*chain(*keys_of(slow))}


def test_what_is_done_is_left_out_and_a_launch_without_rest_too() -> None:
    suite = suite_of(launches=2)
    first, second, *others = keys_of(suite)
    assert keys_of(suite, first[1]) == [[first[0], first[2]], second, *others]
    assert keys_of(suite, *first, *second) == others
    every = [key for launch in keys_of(suite) for key in launch]
    assert rpc_plan(suite, every) == ()
