"""The options of `serve-bench press`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self

from serve_bench.cli.command import FilePath, flag
from serve_bench.cli.options import RUN, LadderOptions, format_flag
from serve_bench.cli.panels import Command
from serve_bench.core.forms import Step
from serve_bench.core.spec import Opt
from serve_bench.report import FORMATS
from serve_bench.serving.apps.press_samples import MOST_SAMPLES
from serve_bench.spec.request import RequestKeys
from serve_bench.spec.suite_keys import SuiteKeys


@dataclass(frozen=True, kw_only=True)
class PressKeys(SuiteKeys):
    """Keys of a suite, with the defaults of the shipped one."""

    clients: Annotated[
        tuple[Step, ...],
        Opt("Numbers of clients, published or auto [published: 1-3000]", key="load.users"),
    ] = ()
    requests_per_client: int | None = 100
    timeout_s: float = 200.0


class PressOptions(LadderOptions):
    """Load a scoring service with 1 to 3,000 clients.

    Gives requests/s, knee, collapse and the cost of logging.

    Example: serve-bench press --quick --log-level DEBUG,ERROR --published
    """

    command = "press"
    specs = (RequestKeys, PressKeys)
    order = f"""clients requests_per_client samples log_level device variant callable app timeout_s
        max_row_seconds num_replicas max_ongoing_requests max_queued_requests ranker max_batch_size
        batch_wait_timeout_s threads table_rows gpu_fraction launches env url header quick
        log_requests exclude_connect suite out resume trace {RUN} slo format published perf_metrics
        trace_out"""

    suite: str = flag("press")
    format: str = format_flag(*FORMATS, "toml")
    samples: int | None = flag(None, "Samples in a request [15].", takes=(1, MOST_SAMPLES))
    app: str | None = flag(
        None,
        "App: ranker (DLRM) or noop, which reads requests [ranker].",
        takes=("ranker", "noop"),
        launched=True,
    )
    quick: bool = flag(False, "Measure 1 to 200 clients.")
    log_requests: FilePath | None = flag(
        None, "Write requests as CSV: client, start, latency, status.", resume=True
    )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Read the options; levels of logging may be in lower case."""
        if levels := values.get("log_level"):
            values = {**values, "log_level": levels.upper()}
        return super().of(values)


press = Command(PressOptions, "benchmarks.press.command:PressRun.measure")
