from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from serve_bench.core.axes import AXES
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import Suite
from serve_bench.core.result import VariantUsed
from serve_bench.runner.model_needs import (
    Torch,
    check_gpus,
    check_memory,
    shape_of,
    torch_of,
    with_device,
)
from serve_bench.serving.apps.dlrm_shape import Shape
from serve_bench.store.files import read_toml, suite_file
from tests.cases import cases, refusal
from tests.places import program
from tests.suites import suite_with

GPU = ("a GPU", 24_000_000_000)


def recsys(**settings: Any) -> Suite:
    data = read_toml(suite_file("recsys"))
    return suite_with(data, "recsys.toml", cell=settings, variant=["default"])


def cell_of(replicas: int, **settings: Any) -> tuple[Suite, dict[str, Any]]:
    suite = recsys(**settings)
    return suite, {**suite.cells[0], "num_replicas": replicas}


def test_the_defaults_of_the_axes_are_those_of_the_published_shape() -> None:
    _, cell = cell_of(1)
    assert shape_of(cell) == Shape()
    plain = {name: AXES[name].default for name in cell if name in AXES}
    assert shape_of(plain) == Shape()
    _, cell = cell_of(1, width=32)
    assert refusal(shape_of, cell).startswith("--bottom: its last layer must be as wide")


def test_tables_that_do_not_fit_are_told_with_the_largest_that_fits() -> None:
    suite, cell = cell_of(4)
    check_memory(suite, cell, 6_000_000_000)
    with pytest.raises(BadInput, match=r"4 ranker replicas take about 5\.5 GB .*at most 3 repl"):
        check_memory(suite, cell, 5_000_000_000)
    with pytest.raises(BadInput, match=r"a ranker replica takes about .*smaller tables$"):
        check_memory(suite, cell, 1_000_000_000)


def test_more_replicas_than_gpus_names_the_fraction_that_fits() -> None:
    suite, cell = cell_of(4)
    single = Torch("2", "13", (GPU,))
    with pytest.raises(BadInput, match=r"need 4 GPUs, this host has 1; try --gpu-fraction 0\.25"):
        check_gpus(suite, cell, single)
    check_gpus(suite, {**cell, "gpu_fraction": 0.25}, single)
    check_gpus(suite, cell, replace(single, devices=(GPU,) * 4))
    # Ray puts no replica on two GPUs: of 0.4 each, two fit on one.
    assert "need 2 GPUs" in refusal(check_gpus, suite, {**cell, "gpu_fraction": 0.4}, single)
    small = Torch("2", "13", (("a GPU", 8_000_000_000),))  # its memory is of all that share it
    with pytest.raises(BadInput, match=r"4 ranker replicas on one GPU take about 8\.66 GB"):
        check_gpus(suite, {**cell, "gpu_fraction": 0.25}, small)


def test_press_holds_a_model_and_press_noop_none(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = Torch("2", None, ())
    monkeypatch.setattr("serve_bench.runner.model_needs.torch_of", lambda variant: torch)
    shape = {"width": 16, "bottom": "64,16", "table_rows": 1000, "sparse_features": 2}
    suite = suite_with({"app": "press", "cell": shape})
    assert [cell["device"] for cell in with_device(suite).cells] == ["cpu"]
    huge = suite_with({"app": "press", "cell": {**shape, "table_rows": 10_000_000}})
    monkeypatch.setattr("serve_bench.runner.model_needs.free_memory_bytes", lambda: 1_500_000_000)
    assert "a ranker replica takes about 1.8 GB" in refusal(with_device, huge)
    without = suite_with({"app": "press_noop", "cell": {"sparse_features": 2}})
    assert with_device(without) is without


def variant_with(tmp_path: Path, script: str) -> VariantUsed:
    return VariantUsed("mine", python=str(program(tmp_path / "python", script)))


NO_PYTHON = "is no Python: asked for its torch, it told nothing"


@cases(
    "script, message",
    ("echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1", "pip install torch"),
    ("echo 'ImportError: libcuda.so' >&2; exit 1", r"cannot be used: ImportError: libcuda\.so"),
    *((script, NO_PYTHON) for script in ("", "echo hello", "echo '{}'")),
)
def test_no_torch_is_refused(script: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        torch_of(variant_with(tmp_path, script))


TELLS = 'echo \'{"version": "2.0", "built_for": %s, "devices": %s}\''


@cases(
    "built_for, devices, asked, becomes",
    ("null", "[]", "auto", "cpu"),
    ('"13"', '[["H", 90000000000], ["H", 90000000000]]', "auto", "cuda"),
    ('"13"', '[["H", 90000000000], ["H", 90000000000]]', "cpu", "cpu"),
    ("null", "[]", "cuda", "torch is built without CUDA; it takes auto or cpu here"),
    ('"13"', "[]", "cuda", "torch finds no CUDA device; it takes auto or cpu here"),
)
def test_the_device_is_what_the_interpreter_has(
    tmp_path: Path, built_for: str, devices: str, asked: str, becomes: str
) -> None:
    variant = variant_with(tmp_path, TELLS % (built_for, devices))
    made = recsys(device=asked, gpu_fraction=0.5, table_rows=1000)
    suite = replace(made, variants=(variant,))
    if " " in becomes:
        assert refusal(with_device, suite).startswith(f"--device cuda: {becomes}")
    else:
        assert {cell["device"] for cell in with_device(suite).cells} == {becomes}
