"""The rows of a size of scale: which time is sampled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from serve_bench.benchmarks.scale import measure as scale_rows
from serve_bench.benchmarks.scale.measure import Rows
from serve_bench.benchmarks.scale.request import scale_plan
from serve_bench.benchmarks.scale.trial import HandleResult
from serve_bench.core.result import VariantUsed
from serve_bench.runner.runner import Part
from tests.scale_records import planned, scale_suite

NOW_NS = 100_000_000_000


class Sampling:
    """A sampler that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, float]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def summary(self, began_ns: int, seconds: float) -> dict[str, Any]:
        self.asked.append((began_ns, seconds))
        return {}

    def samples(self, key: str) -> list[Any]:
        return []


def test_the_cpu_of_a_row_through_a_handle_is_of_its_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two windows of a second, and 30 s of drain behind them."""
    told = HandleResult(2.0, (3, 2), (10, 20, 30, 40, 50), drained_s=30.0)
    sampling, suite = Sampling(), scale_suite("ensemble")
    clock = SimpleNamespace(time_ns=lambda: NOW_NS, monotonic=lambda: 0.0)
    monkeypatch.setattr(scale_rows, "time", clock)
    monkeypatch.setattr(scale_rows, "keep_samples", lambda *_: None)
    monkeypatch.setattr(Rows, "_sampling", lambda _: sampling)
    cluster: Any = SimpleNamespace(handle_load=lambda load: told)
    journal: Any = SimpleNamespace(say=lambda *_, **__: None)
    part = Part("1", VariantUsed("default"), 1)
    rows = Rows(suite, cluster, Path(), "run", part, journal)
    rows._by_handle(scale_plan(suite)[0].cells[0], planned(suite)[0])
    assert sampling.asked == [(NOW_NS - 32_000_000_000, 2.0)]
