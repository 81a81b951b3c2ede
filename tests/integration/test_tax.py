"""`serve-bench tax` on a real Ray Serve: layers, an own app of FastAPI."""

from pathlib import Path

import pytest

from serve_bench.store import read
from tests.integration.conftest import reported, run_checked, wait_until_clean

pytestmark = [pytest.mark.ray]

QUICK = ("--quick", "--rounds", "1", "--out", "run")

APP = """from fastapi import FastAPI
from ray import serve
from starlette.responses import StreamingResponse

api = FastAPI()

@serve.deployment
@serve.ingress(api)
class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @api.get("/name")
    async def tell(self) -> StreamingResponse:
        async def events():
            for _ in range(3):
                yield f"data: {self.name}\\n\\n"
        return StreamingResponse(events(), media_type="text/event-stream")

@serve.deployment
class Plain:
    async def __call__(self, request) -> str:
        return "x"

@serve.deployment
@serve.ingress(FastAPI())
class Composed:
    def __init__(self, first: int, inner) -> None:
        self.inner = inner

app = Shop.bind("shop")
plain = Plain.bind()
composed = Composed.bind(1, inner=Plain.bind())
"""


@pytest.mark.alone
def test_layers_of_the_no_op_are_measured_in_one_round(tmp_path: Path) -> None:
    asked = ["--layers", "uvicorn,fastapi,handle,default", "--clients", "raw:4"]
    run_checked(["tax", *asked, *QUICK], tmp_path, timeout_s=200)
    points = reported(tmp_path, "run")["points"]
    layers = {point["dims"]["layer"]: point["figures"] for point in points}
    rates = {name: figures["throughput"]["value"] for name, figures in layers.items()}
    assert rates["uvicorn"] > rates["default"] and rates["fastapi"] > rates["default"]
    cpu = {name: {key for key in layer if "way_cpu." in key} for name, layer in layers.items()}
    assert cpu["uvicorn"] == {"way_cpu.uvicorn", "way_cpu.all"}
    assert cpu["handle"] == {"way_cpu.replica", "way_cpu.all"}
    assert cpu["default"] == {"way_cpu.proxy", "way_cpu.replica", "way_cpu.all"}
    assert {"idle_cpu.proxy", "idle_cpu.replica"} <= layers["default"].keys()
    result = read(tmp_path / "run")
    assert result.complete and not result.warnings and all(end.clean for end in result.teardowns)
    assert all(not trial.counts.failed for trial in result.trials)
    assert wait_until_clean(1) == []


@pytest.mark.alone
@pytest.mark.long
def test_an_own_app_is_served_bare_with_its_instance(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    stream = ["--route", "/name", "--protocol", "stream", "--clients", "raw:4"]
    line = ["tax", "shop.py:app", *stream, "--layers", "app,default", *QUICK]
    done = run_checked(line, tmp_path, timeout_s=200)
    assert "FastAPI on uvicorn" in done.stdout
    trials = {trial.variant: trial for trial in read(tmp_path / "run").trials}
    for trial in trials.values():
        assert trial.client.events >= 3 * trial.counts.completed > 0
    assert wait_until_clean(1) == []


@pytest.mark.ci
def test_what_is_no_asgi_is_refused_and_what_is_composed_has_no_bare_server(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(APP)
    refused = run_checked(["tax", "shop.py:plain", "--dry-run"], tmp_path, 2)
    assert "TARGET: shop.py:plain: the ingress Plain is no ASGI app" in refused.stderr
    planned = run_checked(["tax", "shop.py:composed", "--dry-run"], tmp_path)
    assert "left out: app: Composed is made with a deployment (inner)" in planned.stdout
