"""Options that several commands have, in groups: spelling, type, default and help, each once.

A command names those that it has in its `order`. An option stands here when it means the same in
all commands; a command whose help or default differs declares the field again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from serve_bench.cli.command import MOST, Options, argument, flag
from serve_bench.cli.panels import USUAL_SHARE
from serve_bench.core.errors import BadInput
from serve_bench.core.load_spec import EVENTS, MAX_RATE
from serve_bench.core.numbers import MOST_LAUNCHES
from serve_bench.report import COMPARED, FORMATS
from serve_bench.spec.base import Opt
from serve_bench.spec.forms import Rounds, SliceTime, Threshold, Time, TracedShare
from serve_bench.spec.request import RequestKeys, ServeKeys

#: Flags that go with --resume: they change what is looked at and shown, not what is measured.
WITH_RESUME = frozenset(
    """resume slo format published perf_metrics dry_run profile trace trace_out no_sample
    serve_metrics log_requests exclude_connect threshold gate fail_on noise strict_host
    live""".split()
)

#: Flags that go with --url: nothing is launched.
WITH_URL = frozenset(
    """url header method body paths headers draw bodies expect_status protocol events event_timeout
    users clients rate stages ramp arrivals connections start requests_per_client samples
    timeout_ms max_row_seconds duration soak_time after launches launch_time precision budget need
    leak quick out slo fail_on log_requests exclude_connect format published perf_metrics no_sample
    load_on load_nodes strict_host dry_run live""".split()
)


#: Parts of the order of parameters that commands share.
MATRIX = "max_batch_size max_ongoing_requests num_replicas batch_wait_timeout_s"
MODEL = "ranker device threads table_rows gpu_fraction"
RUN_HERE = "no_sample strict_host serve_metrics dry_run live"
RUN = f"load_on load_nodes {RUN_HERE}"
REQUEST = "route paths method header headers draw body bodies expect_status request_timeout_s"


def format_flag(*forms: str) -> Any:
    """`--format` of a command that has these forms."""
    return flag("table", f"Form: {', '.join(forms)}.", "--format", "-f", takes=forms)


UNSAMPLED = "--strict-host: needs the samples that --no-sample leaves out"


class SloOptions(Options):
    """Where a run is kept, what is seen of it, and what each row must hold."""

    specs = (RequestKeys, ServeKeys)

    out: Path | None = flag(None, "Folder of the run [results/<time>].")
    live: str = flag("auto", "Progress: auto (live view) or plain lines.", takes=("auto", "plain"))
    no_sample: bool = flag(False, "Do not sample CPU and memory during the load.")
    slo: str | None = flag(None, "Objectives of each row, as p99=50ms,errors=0.1%; or exit code 3.")
    strict_host: bool = flag(
        False, "End with exit code 3 if other programs used over 15% of a core for most of a row."
    )

    def of_file(self) -> bool:
        """Whether a suite file may name protocols."""
        url = getattr(self, "url", None)
        return "suite" in self.parameters() and "protocol" in self.suite_options() and not url

    def protocols(self) -> set[object]:
        """Those of the flag; http without it."""
        given = self.given.get("protocol", "http")
        return {*given} if isinstance(given, tuple) else {given}


class StreamOptions(SloOptions):
    """Responses of an app or a service that is not ours, which may be streams of events."""

    events: str | None = flag(None, "Events of a stream: sse, lines or chunks [sse].", takes=EVENTS)
    event_timeout: str | None = flag(None, "Longest time between two events [that of the request].")

    def protocols(self) -> set[object]:
        return {"stream"} if getattr(self, "openai", False) else super().protocols()


class FormatOptions(Options):
    """How a run is reported."""

    format: str = format_flag(*COMPARED)
    published: bool = flag(False, "Show the published figures too.")
    perf_metrics: Path | None = flag(None, "Write the perf_metrics JSON of Ray's release tooling.")
    trace_out: Path | None = flag(None, "Write single traced requests here, for Perfetto.")
    exclude_connect: bool = flag(False, "Add totals without the opening of connections (press).")


class RunOptions(FormatOptions, SloOptions):
    """Where a run is kept, and whether it is a new one. `with_resume`: parameters that go with
    --resume."""

    with_resume: ClassVar[frozenset[str]] = WITH_RESUME

    url: list[str] | None = flag(
        None, "Load a service that is up already, as [NAME=]URL; repeatable."
    )
    log_requests: Path | None = None

    @property
    def urls(self) -> list[str]:
        """Services that are up already."""
        return self.url or []

    def check_url(self) -> None:
        """BadInput on flags that say something of a cluster that is launched: none is."""
        if wrong := self.changed(WITH_URL if self.url else {*WITH_URL, "target"}):
            raise BadInput(f"--url drives what is there; it does not go with {', '.join(wrong)}")

    suite: str = flag("", "Suite file, or the name of a shipped one.")
    resume: Path | None = flag(None, "Resume the run in this folder with its plan.")
    dry_run: bool = flag(False, "Print the plan and its expected time.")


class VariantOptions(RunOptions):
    """How clusters are started."""

    variant: str | None = flag(None, "Variants, as default,haproxy,optimized.")
    env: list[str] | None = flag(None, "Variable of the environment of every variant; repeatable.")


class LoadOnOptions(Options):
    """Where a load comes from."""

    load_on: str | None = flag(None, "Load from a Ray cluster's nodes: ray (Serve's) or HOST:PORT.")
    load_nodes: int | None = flag(None, "Number of nodes that load with --load-on [all].")
    serve_metrics: bool = flag(False, "Read Serve's own metrics too; about 1 s more per row.")


class TraceOptions(Options):
    """Whether requests are traced through Serve."""

    trace: TracedShare | None = flag(
        None, f"Trace a share of requests [{USUAL_SHARE}], at least 50 a row.", metavar="[SHARE]"
    )


class SuiteOptions(VariantOptions, LoadOnOptions, TraceOptions):
    """A suite of cells and rows, measured on launched clusters."""

    launches: int | None = flag(None, "Launches of each variant [1].", takes=(1, MOST_LAUNCHES))


class RowOptions(SuiteOptions):
    """Rows that are known beforehand, and their length."""

    format: str = format_flag(*FORMATS, "toml")
    clients: str | None = flag(
        None, "N aiohttp clients, raw:N connections [raw:100].", metavar="ROW[,ROW...]"
    )
    windows: int | None = flag(None, "Windows of each row, of 1 s [10].", takes=(1, MOST))
    window_seconds: float | None = flag(None, "Length of a window [1].", takes=(0.01, MOST))
    quick: bool = flag(False, "Measure 3 windows of 0.5 s in each row, await answers for 3 s.")
    profile: str | None = flag(None, "Repeat each row with py-spy on proxy, replica, controller.")


class LadderOptions(SuiteOptions):
    """A load that grows."""

    format: str = format_flag(*COMPARED, "toml")
    users: str | None = flag(None, "Numbers of users, auto or published [auto].")
    duration: Annotated[Time, Meta(ge=0.5, le=86_400)] | None = flag(
        None, "Length of each step [20s]."
    )
    quick: bool = flag(False, "Measure steps of 3 s, none around the best.")


class UrlLadderOptions(LadderOptions):
    """The same of a published benchmark, on services that are there already too."""

    header: list[str] | None = flag(
        None, "Header of the requests to --url; repeatable.", "-H", "--header"
    )


class ChatOptions(SloOptions):
    """Requests to a service that completes chats."""

    openai: bool = flag(False, "Post chat completions, as OpenAI's API has them, as a stream.")


class OwnAppOptions(ChatOptions):
    """An app of the user's own, and the requests to it."""

    target: str | None = None
    option: list[str] | None = flag(
        None, "Values, as Model.num_replicas=1,2,4; repeatable: all combinations are measured."
    )
    arguments: list[str] | None = argument(
        "Arguments of the app's builder, as serve run takes them.", None, "[NAME=VALUE]..."
    )
    arg: list[str] | None = flag(None, "Argument of the app's builder, to be swept; repeatable.")


class TargetOptions(SuiteOptions, OwnAppOptions):
    """An app that is launched, or services that are up already."""

    @property
    def urls(self) -> list[str]:
        """Those of --url, or a target that is an address."""
        return self.url or [target for target in (self.target or "",) if "://" in target]

    def of_file(self) -> bool:
        return not self.urls and re.fullmatch(r"\w+|.+\.toml", str(self.target)) is not None


class ServiceOptions(TargetOptions, StreamOptions):
    """The same by any protocol."""


FAIL_ON: Final = ("regressed", "slower", "inconclusive")


class GateOptions(Options):
    """What a comparison is judged by, and how much of it is told."""

    verbose: bool = flag(False, "Print each launch or run, and the method.", "--verbose", "-v")
    threshold: Threshold | None = flag(None, "Smallest loss that is regressed [5%].")
    gate: str | None = flag(None, "Metrics gated besides throughput: p50, p99, cpu [versus: cpu].")
    fail_on: str | None = flag(
        None, "End with exit code 3 on: regressed, slower (any loss), inconclusive.", takes=FAIL_ON
    )
    noise: Path | None = flag(None, "Folder of an A/A run (versus --aa), whose noise is the floor.")


def rounds_option(help: str) -> Opt:
    """`--rounds` of a command that has these rounds."""
    takes = f"a whole number from 1 to {MOST_LAUNCHES:,}, or +N with --resume"
    return Opt(f"{help}; +N with --resume adds N", "N", read=Rounds.read, takes=takes)


class SidesOptions(TraceOptions, RunOptions, OwnAppOptions, StreamOptions, GateOptions):
    """Options of commands that compare sides in rounds."""

    with_resume = WITH_RESUME - {"no_sample"} | {"rounds"}

    suite: str = flag("versus")
    app: str | None = flag(None, "Built-in app of both sides [noop].")
    rounds: Annotated[
        Rounds | None, rounds_option("Most rounds, each a fresh launch of both sides [20]")
    ] = None
    clients: str | None = flag(
        None, "Rows: N aiohttp clients, raw:N connections [raw:100].", metavar="ROW[,ROW...]"
    )
    rate: float | None = flag(
        None, "Open loop at this rate; in windows, which are noisier.", takes=(0.1, MAX_RATE)
    )
    quick: bool = flag(False, "Measure at most 3 rounds of 4 s on each side.")
    slice: SliceTime | None = flag(None, "Length of a slice, 10ms to 2s [7 drains].")
    seed: int = flag(1, "Seed of the orders of sides and requests.", takes=(0, MOST))
