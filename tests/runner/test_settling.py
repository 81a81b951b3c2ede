"""Before rows without a warm-up: when a service counts as settled, and as it was at first."""

from __future__ import annotations

from typing import Any

import pytest

from serve_bench.core.load_spec import Load, Timing
from serve_bench.core.request_spec import Request
from serve_bench.runner import extra_loads as settling
from serve_bench.runner.extra_loads import Settling, is_settled
from tests.servers import serving


@pytest.mark.parametrize(
    ("found", "settled"),
    [
        ({"steady": True, "judged": True, "p50_ns": 1}, True),
        ({"steady": False, "judged": True, "p50_ns": 1}, False),
        ({"steady": False, "judged": False, "p50_ns": 1}, True),
        ({"steady": False, "judged": False, "p50_ns": None}, False),
        ({"error": "refused"}, False),
    ],
)
def test_what_counts_as_settled(found: dict[str, Any], settled: bool) -> None:
    assert is_settled(found) is settled


def test_a_service_too_slow_to_be_judged_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # The warm-up has time for four requests; in most windows none is begun.
    monkeypatch.setattr(settling, "SETTLING", Timing(0.1, 0.4, windows=1, window_s=0.01))
    monkeypatch.setattr(settling, "RECOVERY_S", 3.0)
    with serving(delay_s=0.1) as server:
        service = Settling(Load(Request(server.url)), {})
        found = service.first()
        assert (found["steady"], found["judged"]) == (False, False)
        assert service.usual_ns is not None and service.usual_ns >= 0.1e9
        assert service.recovered()
