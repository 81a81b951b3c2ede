"""`serve-bench flags` on a real Ray Serve: two switches of an app, one of which waits busily."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from serve_bench.store import read
from tests.integration.conftest import run_to_end, wait_until_clean

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(300)]

APP = """import os, time
from ray import serve
WORK = 0.02 if os.environ.get("SHOP_SLOW") == "yes" else 0.004

@serve.deployment
class App:
    async def __call__(self, request):
        end = time.perf_counter() + WORK
        while time.perf_counter() < end:
            pass
        return "x"

app = App.bind()
"""


def test_the_switch_that_is_slow_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    flags = ["--env", "SHOP_FAST=1", "--env", "SHOP_SLOW=yes"]
    line = ["flags", "--of", "shop.py:app", *flags, "--no-pairs", "--quick", "--rounds", "3"]
    done = run_to_end([*line, "--clients", "raw:4", "--out", "run"], tmp_path, 280)
    assert done.returncode == 0, done.stderr
    shown = run_to_end(["report", "run", "--format", "json"], tmp_path)
    effects = {(one["effect"], one["metric"]): one for one in json.loads(shown.stdout)["effects"]}
    assert effects["SHOP_SLOW", "throughput"]["verdict"] == "regressed", shown.stdout
    assert effects["SHOP_SLOW", "throughput"]["ratio"] < 0.5
    assert effects["SHOP_FAST", "throughput"]["ratio"] > 0.5
    result = read(tmp_path / "run")
    assert result.complete and all(one.clean for one in result.teardowns)
    # Every launch proves its switches in the replica; those that are off are not there.
    points = {one.variant.name: one.proof["environment"]["replica"] for one in result.launches}
    assert points["none"].keys() & {"SHOP_FAST", "SHOP_SLOW"} == set()
    assert points["ab"]["SHOP_SLOW"] == "yes" and points["ab"]["SHOP_FAST"] == "1"
    assert wait_until_clean(1) == []
