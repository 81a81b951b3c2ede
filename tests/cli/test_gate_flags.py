from __future__ import annotations

from pathlib import Path

import pytest

from serve_bench.cli.gate import GateOptions, read_flags, read_noise, read_share
from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result
from tests.records import ROWS, store_run
from tests.versus_records import micro_result, rates, versus_result

TWINS = ("default (A)", "default (B)")


@pytest.mark.parametrize(
    ("text", "share"),
    [("5%", 0.05), ("0.05", 0.05), (" 2.5 % ", 0.025), ("90%", 0.9), ("1e-3", 0.001)],
)
def test_a_threshold_is_a_share(text: str, share: float) -> None:
    assert read_share(text, "--threshold") == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "0", "0%", "-5%", "100%", "nan", "inf", "", "%", "5%%", "x"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"--threshold: .* it takes a share such as 5% or 0.05"):
        read_share(text, "--threshold")


@pytest.mark.parametrize(
    ("text", "metrics"),
    [
        ("p99", ("throughput", "p99")),
        ("cpu, p50", ("throughput", "p50", "cpu")),
        ("throughput", ("throughput",)),
        ("p99,p99", ("throughput", "p99")),
    ],
)
def test_throughput_is_always_in_the_gate(text: str, metrics: tuple[str, ...]) -> None:
    assert read_flags(GateOptions(gate=text)).metrics == metrics


def test_the_floor_is_read_from_an_a_a_run(tmp_path: Path) -> None:
    result = versus_result({ROWS[2]: rates(500.0, 500.0)}, labels=TWINS)
    assert read_noise(store_run(tmp_path, result)).aa
    assert read_flags(GateOptions(threshold="1%", noise=tmp_path)).noise is not None


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "no such folder"),
        (versus_result(), "is no A/A run; serve-bench versus --aa makes one"),
        (versus_result({ROWS[2]: rates(5.0, 5.0, 2)}, labels=TWINS), "fewer than 3 rounds"),
        (micro_result({ROWS[2]: (5.0,)}), "is a run of micro, not of versus --aa"),
    ],
)
def test_another_run_gives_no_floor(tmp_path: Path, result: Result | None, message: str) -> None:
    folder = tmp_path / "run"
    if result is not None:
        store_run(folder, result)
    with pytest.raises(BadInput) as refused:
        read_noise(folder)
    assert str(refused.value).startswith("--noise: ") and message in str(refused.value)
    assert str(refused.value).count("--noise") == 1
