"""What `serve-bench rpc` is asked for: one swept argument, bad values in one line, the plan."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from serve_bench.benchmarks.rpc.request import (
    KEYS,
    LISTS,
    OPTIONAL,
    PUBLISHED_ARGUMENTS,
    RpcSuite,
    World,
    read_backends,
    read_number,
    read_worlds,
    rpc_plan,
    texts_of,
    x_of,
)
from serve_bench.core.errors import BadInput
from serve_bench.store.files import read_toml, suite_file
from tests import places

REFERENCE = places.TOP / "serve_bench" / "reference" / "torch_rpc.json"
PLAIN = {
    **{"world_size": "10", "batch": "True", "state_size": "10-20-10", "nlayers": "5"},
    **{"out_features": "10", "device": "cpu", "threads": "1"},
}
FLAGS = {name: f"--{name.replace('_', '-')}" for name in KEYS}
WORLD = World(10, True, (10, 20, 10), 5, 10, "cpu", 1)


def worlds_of(**given: str) -> tuple[tuple[World, ...], str]:
    return read_worlds({**PLAIN, **given}, FLAGS)


def suite_of(**given: Any) -> RpcSuite:
    worlds = tuple(replace(WORLD, world_size=size) for size in (2, 3, 4))
    asked = {"backends": ("torch", "ray"), "worlds": worlds, "x_axis": "world_size"}
    return RpcSuite(**{**asked, "master_addr": "127.0.0.1", "master_port": 0, **given})


def test_the_published_arguments_are_those_of_the_reference_and_the_shipped_suite_has_them() -> (
    None
):
    published = json.loads(REFERENCE.read_text(encoding="utf-8"))["arguments"]
    assert list(published) == list(PUBLISHED_ARGUMENTS)
    texts = texts_of(read_toml(suite_file("rpc")), "rpc.toml")
    assert set(KEYS) - set(OPTIONAL) == set(texts)
    here = {name: texts[name] for name in PUBLISHED_ARGUMENTS if name in texts}
    differs = {name for name in here if here[name].lower() != published[name].lower()}
    assert differs == {"world_size"}  # 80 processes are not for everyone's first try
    assert read_worlds(texts, FLAGS) == ((WORLD,), "world_size")


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


def test_two_lists_are_refused_and_both_are_named() -> None:
    with pytest.raises(BadInput, match=r"^--world-size and --batch: only one argument may be a"):
        worlds_of(world_size="10,20", batch="True,False")
    # Where a list comes from a file, the file and the key are named.
    where = {**FLAGS, "nlayers": "f.toml: rpc.nlayers"}
    with pytest.raises(BadInput, match=r"^--batch and f\.toml: rpc\.nlayers: only one"):
        read_worlds({**PLAIN, "nlayers": "1,2", "batch": "True,False"}, where)


@pytest.mark.parametrize("text", ["True", "true", "TRUE", "yes", "t", "Y", "1"])
def test_batch_is_true_in_every_spelling(text: str) -> None:
    assert worlds_of(batch=text)[0][0].batch is True


@pytest.mark.parametrize("text", ["False", "false", "no", "F", "n", "0"])
def test_batch_is_false_in_every_spelling(text: str) -> None:
    assert worlds_of(batch=text)[0][0].batch is False


SIZES = "it takes whole numbers joined by -, such as 10-20-10"
BAD = [
    ("world_size", "1", "a number from 2 to 4096: one agent, and at least one observer"),
    ("world_size", "4097", "a number from 2 to 4096"),
    ("world_size", "x", "a number from 2 to 4096"),
    ("world_size", "", "a number from 2 to 4096"),
    ("world_size", "10.0", "a number from 2 to 4096"),
    ("world_size", "-10", "a number from 2 to 4096"),
    ("world_size", "\u0663", "a number from 2 to 4096"),
    ("world_size", "9" * 5000, "a number from 2 to 4096"),
    ("batch", "maybe", "it takes True or False"),
    ("batch", "", "it takes True or False"),
    ("state_size", "10-x", SIZES),
    ("state_size", "10--10", SIZES),
    ("state_size", "-10", SIZES),
    ("state_size", "", SIZES),
    ("state_size", "10x20", SIZES),
    ("nlayers", "0", "a number from 1 to 1000"),
    ("out_features", "10001", "a number from 1 to 10000"),
    ("device", "tpu", "it takes auto, cpu or cuda"),
    ("threads", "0", "a number from 1 to 1024"),
]


@pytest.mark.parametrize(("name", "text", "takes"), BAD, ids=[f"{a} {b[:9]}" for a, b, _ in BAD])
def test_a_bad_value_is_named_with_its_flag_and_what_it_takes(
    name: str, text: str, takes: str
) -> None:
    for given in {text, f"{text},{PLAIN[name]}"}:
        with pytest.raises(BadInput) as refused:
            worlds_of(**{name: given})
        assert str(refused.value).startswith(f"{FLAGS[name]}: {text!r} is not allowed; ")
        assert takes in str(refused.value) and "\n" not in str(refused.value)


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
    with pytest.raises(BadInput) as refused:
        worlds_of(state_size=text)
    said = f"makes a state of {many} numbers; it takes 1 to 100,000,000"
    assert str(refused.value) == f"--state-size: {text} {said}"


@pytest.mark.parametrize(
    ("name", "text", "twice"),
    [
        ("world_size", "3,4,3", "3"),
        ("batch", "True,t", "t"),
        ("state_size", "4-5,04-5", "04-5"),
    ],
)
def test_a_point_stands_once(name: str, text: str, twice: str) -> None:
    with pytest.raises(BadInput, match=f"^{FLAGS[name]}: {twice} stands there twice$"):
        worlds_of(**{name: text})


def test_backends_are_known_and_stand_once() -> None:
    assert read_backends("serve, torch,ray", "--backend") == ("serve", "torch", "ray")
    for text, said in (
        ("mpi", "'mpi' is not allowed; it takes torch, ray, serve"),
        ("torch,", "'' is not allowed; it takes torch, ray, serve"),
        ("ray,torch,ray", "ray stands there twice"),
    ):
        with pytest.raises(BadInput, match=f"^--backend: {said}$"):
            read_backends(text, "--backend")


def test_a_number_lies_within() -> None:
    assert read_number("7", "--steps", 1, 9) == 7
    assert read_number("0.5", "--seconds", 0.1, 9.0, whole=False) == 0.5
    for text in ("0", "10", "7.0", "x", "", "nan", "9" * 5000):
        with pytest.raises(BadInput) as refused:
            read_number(text, "--steps", 1, 9)
        said = f"--steps: {text!r} is not allowed; it takes a whole number from 1 to 9"
        assert str(refused.value) == said
    for text in ("0", "nan", "inf", "-inf", "1s"):
        with pytest.raises(BadInput, match=r"^--seconds: .* it takes a number from 0\.1 to 9"):
            read_number(text, "--seconds", 0.1, 9.0, whole=False)


# ------------------------------------------------------------------------------- a suite file


def table(**changed: Any) -> dict[str, Any]:
    """The shipped suite; a key that is None is left out."""
    rpc = {**read_toml(suite_file("rpc"))["rpc"], **changed}
    return {"rpc": {name: value for name, value in rpc.items() if value is not None}}


def test_a_suite_file_writes_lists_and_values_as_toml_has_them() -> None:
    text = """
        batch = [true, false]
        seconds = 2.5
        backend = ["torch", "ray"]
        world_size = 3
    """
    texts = texts_of(table(**tomllib.loads(text)), "f.toml")
    assert texts.items() >= {"batch": "True,False", "seconds": "2.5", "world_size": "3"}.items()
    assert read_backends(texts["backend"], "f.toml: rpc.backend") == ("torch", "ray")
    worlds, x_axis = read_worlds(texts, FLAGS)
    assert x_axis == "batch" and [one.batch for one in worlds] == [True, False]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"load": {}}, "f.toml: unknown key 'load'"),
        ({"rpc": 3}, "f.toml: rpc: takes a table of arguments"),
        ({"rpc": []}, "f.toml: rpc: takes a table of arguments"),
        (table(wrld_size=3), "f.toml: rpc: unknown key 'wrld_size'; did you mean 'world_size'?"),
        (table(nlayers=None), "f.toml: rpc: nlayers is missing"),
        ({}, "f.toml: rpc: world_size is missing"),
    ],
    ids=["another table", "a number", "a list", "a typing error", "too little", "nothing"],
)
def test_a_suite_file_with_an_error_is_named_with_its_key(data: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        texts_of(data, "f.toml")
    assert str(refused.value).startswith(said) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [("world_size", 10.5), ("batch", "x"), ("state_size", [10, "x"]), ("nlayers", {"a": 1})],
)
def test_a_bad_value_of_a_suite_file_is_named_with_file_and_key(name: str, value: Any) -> None:
    where = {key: f"f.toml: rpc.{key}" for key in KEYS}
    with pytest.raises(BadInput, match=rf"^f\.toml: rpc\.{name}: .* is not allowed; it takes "):
        read_worlds(texts_of(table(**{name: value}), "f.toml"), where)


# -------------------------------------------------------------------------- records and the plan


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
        with pytest.raises(BadInput, match=r"^the stored suite cannot be gone on with: "):
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


def test_keys_are_unique_and_stay_what_they_are() -> None:
    both = (*suite_of().worlds, *(replace(one, batch=False) for one in suite_of().worlds))
    suite = suite_of(worlds=both, launches=2)
    keys = [key for launch in keys_of(suite) for key in launch]
    assert len(keys) == len(set(keys)) == 2 * 2 * 6
    # Another time of the fixed policy is another cell: it must not be taken for the same.
    slow, slower = suite_of(policy_ms=20.0), suite_of(policy_ms=30.0)
    others = {*chain(*keys_of(slower), *keys_of(suite))}
    assert not others & {*chain(*keys_of(slow))}
    assert keys_of(suite)[0][0] == (
        "torch/r1/batch=True-device=cpu-nlayers=5-out_features=10-state_size=10-20-10-threads=1-"
        "world_size=2/1-observer"
    )


def test_what_is_done_is_left_out_and_a_launch_without_rest_too() -> None:
    suite = suite_of(launches=2)
    first, second, *others = keys_of(suite)
    assert keys_of(suite, first[1]) == [[first[0], first[2]], second, *others]
    assert keys_of(suite, *first, *second) == others
    every = [key for launch in keys_of(suite) for key in launch]
    assert rpc_plan(suite, every) == ()
