import tomllib
from pathlib import Path
from typing import Any

import pytest

from serve_bench.benchmarks.rpc.spec import read_rpc
from serve_bench.cli.command import Options, flag
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import Suite, label_of, parse_row, plan, without
from serve_bench.core.timeline import Timeline
from serve_bench.core.traffic import Traffic
from serve_bench.runner.agenda import Agenda
from serve_bench.spec.axes import axis_options
from serve_bench.store.files import read_toml, shipped, suite_file
from tests.cases import cases, refusal
from tests.suites import suite_with


def micro(**flags: Any) -> Suite:
    return suite_with(read_toml(suite_file("micro")), "micro.toml", **flags)


def cells_of(suite: Suite) -> list[tuple[object, ...]]:
    names = ("max_batch_size", "max_ongoing_requests", "num_replicas")
    return [tuple(cell[name] for name in names) for cell in suite.cells]


def test_micro_holds_the_published_cells_in_order_and_three_rows() -> None:
    pairs = ((1, 1), (1, 10000), (10000, 10000))
    assert cells_of(micro()) == [(*pair, replicas) for replicas in (1, 8) for pair in pairs]
    rows = [(row.label, row.client, row.connections) for row in micro().rows]
    clients = [("single client", "aiohttp", 1), ("8 clients", "aiohttp", 8)]
    assert rows == [*clients, ("100 connections", "raw", 100)]
    matrix = {"max_batch_size": (1, 16), "max_ongoing_requests": (1, 100), "num_replicas": (1, 4)}
    product = [(b, c, r) for r in (1, 4) for b in (1, 16) for c in (1, 100)]
    assert cells_of(micro(matrix=matrix)) == product  # with replicas outermost
    # A cell is named by the published axes and what differs from the default.
    plain, other = micro(), micro(cell={"body_type": "str"})
    published = ("max_batch_size", "max_ongoing_requests", "num_replicas")
    assert list(label_of(plain.cells[0]).items()) == [(name, 1) for name in published]
    assert label_of(other.cells[0])["body_type"] == "str"


@pytest.mark.parametrize("file", sorted(shipped("scenarios").glob("*.toml")), ids=lambda f: f.stem)
def test_every_shipped_suite_loads(file: Path) -> None:
    data = read_toml(file)
    assert data["name"] == file.stem
    kind = next((kind for kind in ("rpc", "scale", "timeline") if kind in data), None)
    if kind:  # that of scale is read by test_scale_request.py, with an own app tests/kinds/timeline
        said = refusal(suite_with, data, file.name)
        assert said.endswith(f"{file.name}: is a suite of serve-bench {kind}")
    if kind == "rpc":  # of worlds, not of cells on a Serve
        assert read_rpc(Content(file.name, data), {}).episodes > 0
    elif kind == "timeline":
        assert Timeline.read(Content(file.name, data)).seconds <= 60
    elif kind is None:
        suite = suite_with(data, file.name)
        assert suite.name == file.stem and suite.cells and suite.variants
        assert bool(suite.rows) != (suite.ladder is not None)


@cases(
    "variants, env, refused",
    (("default", "haproxy"), {"RAY_SERVE_ENABLE_HA_PROXY": "1"}, True),
    (("default", "haproxy"), {"RAY_SERVE_X": "1"}, False),
    (("haproxy", "optimized"), {"RAY_SERVE_ENABLE_HA_PROXY": "1"}, False),
    (("one", "two"), {"OMP_NUM_THREADS": "4"}, True),
    (("one", "two", "default"), {"RAY_SERVE_X": "1", "OMP_NUM_THREADS": "4"}, True),
    (("two", "twin"), {"OMP_NUM_THREADS": "4"}, False),  # the same before: as it was asked
)
def test_env_keeps_variants(variants: tuple[str, ...], env: dict[str, str], refused: bool) -> None:
    values = {"one": "1", "two": "2", "twin": "2"}
    tables = {name: {"env": {"OMP_NUM_THREADS": value}} for name, value in values.items()}
    flags: dict[str, Any] = {"variant": [*variants], "env": env}
    if not refused:
        used = suite_with({"variants": tables}, "f.toml", **flags).variants
        assert [variant.name.partition("+")[0] for variant in used] == list(variants)
        return
    changed = next(key for key in env if key != "RAY_SERVE_X")
    with pytest.raises(BadInput, match=rf"sets {changed} for every variant") as error:
        suite_with({"variants": tables}, "f.toml", **flags)
    assert f"{variants[0]} and {variants[1]} are the same" in str(error.value)


def test_a_variant_of_the_file_has_environment_http_options_and_an_interpreter() -> None:
    text = """
        variant = ["mine"]
        [variants.mine]
        base = "haproxy"
        env = {RAY_SERVE_Y = 3, RAY_SERVE_Z = true}
        http_options = {request_timeout_s = 2.5}
        python = "other/bin/python"
    """
    (mine,) = suite_with(tomllib.loads(text), "f.toml").variants
    assert mine.env == {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_Y": "3", "RAY_SERVE_Z": "1"}
    assert mine.http_options == {"request_timeout_s": 2.5}
    assert mine.python == "other/bin/python"


@cases(
    "data, message",
    ({"lod": {}}, "f.toml: unknown key 'lod'; did you mean 'load'?"),
    ({"load": 3}, "f.toml: load: must be a table, as [load]"),
    ({"cells": [{"num_replica": 1}]}, "did you mean 'num_replicas'?"),
    ({"cells": [{"num_replicas": 0}]}, "f.toml: cells[1].num_replicas: 0 is not allowed"),
    ({"cells": [{"data_size": "large"}]}, "data_size belongs to [load]"),
    ({"cells": [{}, {}]}, "is given twice"),
    ({"cells": [{}], "matrix": {"num_replicas": [1]}}, "give cells or matrix, not both"),
    ({"matrix": {"num_replicas": []}}, "at least one value"),
    ({"cell": {"body_type": "bytes"}}, "it takes response or str"),
    ({"cell": {"log_level": "ERROR"}}, "f.toml: cell.log_level: the app noop has no log_level"),
    ({"variant": ["fast"]}, "unknown variant 'fast'; allowed: default, haproxy, optimized"),
    ({"variant": []}, "variant: at least one value is needed"),
    ({"variant": ["default", "default"]}, "default is given twice"),
    ({"variants": {"a b": {}}}, "variant name 'a b'"),
    ({"variants": {"a": {"enw": {}}}}, "unknown key 'enw'; did you mean 'env'?"),
    ({"variants": {"a": {"env": {"1x": "x"}}}}, "'1x' is not an environment name"),
    ({"variants": {"a": {"http_options": {"port": 1}}}}, "http_options.port is set by serve-bench"),
    ({"cells": []}, "f.toml: cells: at least one is needed"),
    ({"variants": {"a": {"env": {"X": "a\0b"}}}}, "cannot hold a null character"),
    ({"variants": {"a": {"python": ""}}}, "python must be the path"),
    ({"variants": {"default": {}}}, "default is built in"),
    ({"variants": {"a": {"base": []}}}, "variants.a.base: expected str, got array"),
    ({"cell": {"batch_wait_timeout_s": 10**400}}, "cell.batch_wait_timeout_s: 1000"),
)
def test_a_wrong_suite_is_one_line(data: dict[str, Any], message: str) -> None:
    assert message in refusal(suite_with, data, "f.toml")


def test_an_axis_that_a_command_does_not_list_has_its_flag_after_the_last_that_it_lists() -> None:
    class Listed(Options):
        command = "micro"
        order = "early num_replicas late"

        early: bool = flag(False, "Before.")
        late: int = flag(1, "After.")

    names = list(Listed.parameters())
    assert names[:2] == ["early", "num_replicas"] and names[-1] == "late"
    assert {axis.name for axis in axis_options("micro").values()} == set(names) - {"early", "late"}
    options = Listed.of({"early": True, "late": 1, "num_replicas": "1,2", "device": None})
    assert options.given == {"num_replicas": (1, 2)}
    assert options.changed() == ["--early", "--num-replicas"]
    with pytest.raises(AttributeError, match="late"):
        options.__setattr__("late", 2)


def test_two_variants_make_36_trials_on_two_clusters() -> None:
    launches = plan(micro(variant=["default", "optimized"]))
    assert [launch.variant.name for launch in launches] == ["default", "optimized"]
    keys = [trial.key for launch in launches for _, trials in launch.cells for trial in trials]
    assert len(keys) == len(set(keys)) == 36
    assert keys[0] == "default/r1/bs1-ongoing1-rep1/single-client"
    # What is measured is left out with the clusters that only it needed.
    rest = without(launches, [*keys[:18], "optimized/r1/bs1-ongoing1-rep1/8-clients"])
    assert [launch.variant.name for launch in rest] == ["optimized"]
    labels = [trial.row.label for trial in rest[0].cells[0][1]]
    assert labels == ["single client", "100 connections"]
    assert without(launches, keys) == ()
    again = plan(micro(variant=["default", "optimized"], launches=2))  # in turn in a round
    turns = [(launch.round, launch.variant.name) for launch in again]
    assert turns == [(round_, name) for round_ in (1, 2) for name in ("default", "optimized")]
    one_s, two_s = (Agenda(micro(), plan(micro(launches=n))).expected_s() for n in (1, 2))
    assert one_s > 18 * 10 and two_s > 1.9 * one_s  # holds all windows, and grows with clusters
    # Later rounds keep the cells in another order, which is always the same.
    suite = micro(launches=3)
    orders = [[label_of(cell) for cell, _ in launch.cells] for launch in plan(suite)]
    assert orders == [[label_of(cell) for cell, _ in launch.cells] for launch in plan(suite)]
    assert orders[0] == [label_of(cell) for cell in suite.cells]
    assert orders[1] != orders[0] and orders[2] not in orders[:2]
    for order in orders[1:]:
        assert sorted(map(str, order)) == sorted(map(str, orders[0]))
    two = plan(micro(matrix={"num_replicas": (1, 2)}, launches=4))  # each is first as often
    firsts = [launch.cells[0][0]["num_replicas"] for launch in two]
    assert sorted(firsts) == [1, 1, 2, 2] and firsts[:2] == [1, 2]


@cases(
    "text, label, client, connections",
    ("1", "single client", "aiohttp", 1),
    ("8", "8 clients", "aiohttp", 8),
    ("aiohttp:3", "3 clients", "aiohttp", 3),
    ("raw:1", "1 connection", "raw", 1),
    ("raw:100", "100 connections", "raw", 100),
)
def test_a_row_is_read(text: str, label: str, client: str, connections: int) -> None:
    row = parse_row(text, Traffic(), "--clients")
    assert (row.label, row.client, row.connections) == (label, client, connections)
    for wrong in ("", "0", "raw:", "-1", "1.5", "raw:999999", "٣"):
        assert "--clients" in refusal(parse_row, wrong, Traffic(), "--clients")
