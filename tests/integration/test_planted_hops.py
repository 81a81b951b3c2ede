"""Delays planted in each hop of traced requests on a real Serve: the finding names the hop.

All is in scripts/bench_hops.py: 8 hops, 5 and 20 ms, two variants, each launched once (3 min).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench_hops import HEAD, STRANGERS, cases, line

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(700)]

FEWEST_NAMED = 30


def test_the_hop_of_a_planted_delay_is_named_in_30_of_32(tmp_path: Path) -> None:
    seen = list(cases(tmp_path))
    planted = [one for one in seen if one.hop.plant]
    table = "\n".join([HEAD, *map(line, seen)])
    print(table)
    assert len(planted) == 32
    assert all(one.fall["unseen"] <= 2 for one in seen), table
    disturbed = sum(one.strangers >= STRANGERS for one in planted)
    if disturbed > len(planted) - FEWEST_NAMED:
        pytest.skip(f"strangers took cores in {disturbed} of 32 cases, three times each")
    assert sum(one.named for one in planted) >= FEWEST_NAMED, table
