"""An app for tests of autoscaling and faults: a request takes SERVICE_S and hardly any CPU.

A replica serves SLOTS requests at once, so SLOTS / SERVICE_S requests a second, on any host. `app`
scales by itself between one replica and MOST; `fixed` has FIXED replicas.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ray import serve
from starlette.responses import PlainTextResponse

from . import QUIET

SERVICE_S = 0.1
SLOTS = 5
MOST = 4
FIXED = 3

SCALING = {
    "min_replicas": 1,
    "max_replicas": MOST,
    "target_ongoing_requests": 3,
    "metrics_interval_s": 0.5,
    "look_back_period_s": 1.0,
    "upscale_delay_s": 1.0,
    "downscale_delay_s": 5.0,
}
"""Serve's defaults take 30 s to add a replica and 600 s to take one away."""


@serve.deployment(
    max_ongoing_requests=SLOTS,
    ray_actor_options={"num_cpus": 0.1},
    autoscaling_config=SCALING,
    user_config={"service_s": SERVICE_S},
    graceful_shutdown_timeout_s=5.0,
    logging_config=QUIET,
)
class Elastic:
    """An app that answers after `service_s` of its user_config."""

    def __init__(self) -> None:
        self._service_s = SERVICE_S

    def reconfigure(self, config: dict[str, Any]) -> None:
        """Take the user_config."""
        self._service_s = float(config["service_s"])

    async def __call__(self, request: Any) -> PlainTextResponse:
        await asyncio.sleep(self._service_s)
        return PlainTextResponse("ok")


app = Elastic.bind()
fixed = Elastic.options(num_replicas=FIXED, autoscaling_config=None).bind()
