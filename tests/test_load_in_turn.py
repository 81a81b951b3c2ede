"""Windows in turn: what stands in for slices where a load cannot be sliced."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from serve_bench.core.load_result import Warmup
from serve_bench.core.load_spec import Load, Slices
from serve_bench.core.request_spec import Request
from serve_bench.load import LoadError
from serve_bench.load.driver import drive_windows, joined
from tests.servers import serving


def test_an_open_loop_meets_two_targets_in_turn() -> None:
    plan = Slices(pairs=3, slice_s=0.2, warmup_s=0.05, seed=5)
    with serving() as one, serving() as two:
        loads = tuple(
            Load(Request(at.url, expect_body=b"ok"), connections=2, rate=100.0) for at in (one, two)
        )
        result = drive_windows((loads[0], loads[1]), plan)
    assert [part.pair for part in result.slices] == [0, 0, 1, 1, 2, 2]
    assert {part.side for part in result.slices[:2]} == {0, 1}
    for side, whole in enumerate(result.sides):
        own = [part for part in result.slices if part.side == side]
        assert whole.windows == tuple(part.completed for part in own)
        # Each window's requests are followed to their end, each window counts what came in it.
        assert whole.measured.completed == whole.measured.sent == whole.latency.count == 60
        assert whole.completed_in_windows == sum(whole.windows) > 0
        assert whole.duration_s == pytest.approx(sum(part.length_s for part in own))
        assert whole.measured.balanced and whole.total.balanced
    again = replace(result.sides[0], warmup=Warmup(0.05, False, 9, False))
    assert joined(loads[0], [result.sides[0], again]).warmup == result.sides[0].warmup
    spans = [(part.begun_s, part.begun_s + part.length_s) for part in result.slices]
    assert spans[0][0] == 0.0
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    busy = sorted(
        (e.received_ns, e.answered_ns, k) for k, s in enumerate((one, two)) for e in s.log
    )
    for (_, answered, side), (received, _, other) in pairwise(busy):
        assert side == other or received >= answered


def test_a_target_that_is_not_there_is_said() -> None:
    with serving() as one:
        good = Load(Request(one.url), rate=50.0)
        bad = Load(Request("http://127.0.0.1:1/"), rate=50.0)
        with pytest.raises(LoadError, match=r"127\.0\.0\.1:1"):
            drive_windows((good, bad), Slices(pairs=1, slice_s=0.1, warmup_s=0.05))
