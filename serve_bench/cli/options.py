"""Options that several commands have, in groups: spelling, type, default and help, each once.

A command names those that it has in its `order`. An option stands here when it means the same in
all commands; a command whose help or default differs declares the field again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from serve_bench.cli.command import MOST, FilePath, Options, argument, flag
from serve_bench.cli.panels import USUAL_SHARE
from serve_bench.core.errors import BadInput
from serve_bench.core.forms import Rounds, RowText, SliceTime, Threshold, Time, TracedShare
from serve_bench.core.load_spec import MAX_RATE
from serve_bench.core.numbers import MOST_LAUNCHES
from serve_bench.core.spec import Opt, Spec
from serve_bench.report import COMPARED, FORMATS
from serve_bench.spec.request import RequestKeys, ServeKeys
from serve_bench.spec.suite_keys import SuiteKeys

#: Names of parameters, in the order of `--help`: parts that the `order` of several commands share.
MATRIX = "max_batch_size max_ongoing_requests num_replicas batch_wait_timeout_s"
MODEL = "ranker device threads table_rows gpu_fraction"
RUN_HERE = "no_sample strict_host serve_metrics dry_run live"
RUN = f"load_on load_nodes {RUN_HERE}"
REQUEST = """route paths method header headers draw body bodies requests_file expect_status
    request_timeout_s"""


def format_flag(*forms: str) -> Any:
    """Declare `--format` of a command that has these forms."""
    help = f"Form: {', '.join(forms)}."
    return flag("table", help, "--format", "-f", takes=forms, resume=True)


UNSAMPLING = "Do not sample CPU and memory during the load."
UNSAMPLED = "--strict-host: needs the samples that --no-sample leaves out"


class SloOptions(Options):
    """Options of every run: its folder, its clusters and load, what is sampled, its objectives."""

    specs: ClassVar[Sequence[type[Spec]]] = (RequestKeys, ServeKeys, SuiteKeys)

    env: list[str] | None = flag(
        None, "Variable of the environment of every variant; repeatable.", launched=True
    )
    load_on: str | None = flag(None, "Load from a Ray cluster's nodes: ray (Serve's) or HOST:PORT.")
    load_nodes: int | None = flag(None, "Number of nodes that load with --load-on [all].")
    serve_metrics: bool = flag(
        False, "Read Serve's own metrics too; about 1 s more per row.", launched=True, resume=True
    )
    trace: TracedShare | None = flag(
        None,
        f"Trace a share of requests [{USUAL_SHARE}], at least 50 a row.",
        metavar="[SHARE]",
        launched=True,
        resume=True,
    )
    out: FilePath | None = flag(None, "Folder of the run [results/<time>].")
    live: str = flag(
        "auto", "Progress: auto (live view) or plain lines.", takes=("auto", "plain"), resume=True
    )
    no_sample: bool = flag(False, UNSAMPLING)
    slo: str | None = flag(
        None, "Objectives of each row, as p99=50ms,errors=0.1%; or exit code 3.", resume=True
    )
    strict_host: bool = flag(
        False,
        "End with exit code 3 if other programs used over 15% of a core for most of a row.",
        resume=True,
    )


class FormatOptions(Options):
    """How a run is reported."""

    format: str = format_flag(*COMPARED)
    published: bool = flag(False, "Show the published figures too.", resume=True)
    perf_metrics: FilePath | None = flag(
        None, "Write the perf_metrics JSON of Ray's release tooling.", resume=True
    )
    trace_out: FilePath | None = flag(
        None, "Write single traced requests here, for Perfetto.", launched=True, resume=True
    )
    exclude_connect: bool = flag(
        False, "Add totals without the opening of connections (press).", resume=True
    )


class RunOptions(FormatOptions, SloOptions):
    """What is measured, a suite or a running service, and whether the run is a new one."""

    url: list[str] | None = flag(
        None, "Load a service that is up already, as [NAME=]URL; repeatable."
    )
    log_requests: FilePath | None = None  # a flag of press alone
    suite: str = flag("", "Suite file, or the name of a shipped one.", launched=True)
    resume: FilePath | None = flag(
        None, "Resume the run in this folder with its plan.", launched=True, resume=True
    )
    dry_run: bool = flag(False, "Print the plan and its expected time.", resume=True)

    @property
    def urls(self) -> list[str]:
        """Services that are up already."""
        return self.url or []

    def check_url(self) -> None:
        """Raise BadInput where --url stands beside flags of a cluster, since none is launched."""
        target = () if self.url is None else ("target",)
        if wrong := self.changed(lambda option: option.opt.launched or option.name in target):
            raise BadInput(f"--url drives what is there; it does not go with {', '.join(wrong)}")


class SuiteOptions(RunOptions):
    """A suite of cells and rows, measured on launched clusters."""

    no_sample: bool = flag(False, UNSAMPLING, resume=True)


class RowOptions(SuiteOptions):
    """Rows that are known beforehand, and their length."""

    format: str = format_flag(*FORMATS, "toml")
    quick: bool = flag(False, "Measure 3 windows of 0.5 s in each row, await answers for 3 s.")
    profile: str | None = flag(
        None, "Repeat each row with py-spy on proxy, replica, controller.", resume=True
    )


class LadderOptions(SuiteOptions):
    """A load that grows."""

    format: str = format_flag(*COMPARED, "toml")
    duration: Annotated[Time, Meta(ge=0.5, le=86_400)] | None = flag(
        None, "Length of each step [20s]."
    )
    quick: bool = flag(False, "Measure steps of 3 s, none around the best.")


class OwnAppOptions(SloOptions):
    """An app of the user's own, and the requests to it."""

    target: str | None = None
    option: list[str] | None = flag(
        None,
        "Values, as Model.num_replicas=1,2,4; repeatable: all combinations are measured.",
        launched=True,
    )
    arguments: list[str] | None = argument(
        None,
        "Arguments of the app's builder, as serve run takes them.",
        metavar="[NAME=VALUE]...",
        launched=True,
    )
    arg: list[str] | None = flag(
        None, "Argument of the app's builder, to be swept; repeatable.", launched=True
    )


class TargetOptions(SuiteOptions, OwnAppOptions):
    """An app that is launched, or services that are up already."""

    @property
    def urls(self) -> list[str]:
        """The services of --url, or a target that is an address."""
        return self.url or [target for target in (self.target or "",) if "://" in target]


FAIL_ON: Final = ("regressed", "slower", "inconclusive")


class GateOptions(Options):
    """What a comparison is judged by, and how much of it is reported."""

    verbose: bool = flag(False, "Print each launch or run, and the method.", "--verbose", "-v")
    threshold: Threshold | None = flag(None, "Smallest loss that is regressed [5%].", resume=True)
    gate: str | None = flag(
        None, "Metrics gated besides throughput: p50, p99, cpu [versus: cpu].", resume=True
    )
    fail_on: str | None = flag(
        None,
        "End with exit code 3 on: regressed, slower (any loss), inconclusive.",
        takes=FAIL_ON,
        resume=True,
    )
    noise: FilePath | None = flag(
        None, "Folder of an A/A run (versus --aa), whose noise is the floor.", resume=True
    )


def rounds_option(help: str) -> Opt:
    """Declare `--rounds` of a command that has these rounds."""
    takes = f"a whole number from 1 to {MOST_LAUNCHES:,}, or +N with --resume"
    return Opt(f"{help}; +N with --resume adds N", "N", read=Rounds.read, takes=takes, resume=True)


class SidesOptions(RunOptions, OwnAppOptions, GateOptions):
    """Options of commands that compare sides in rounds."""

    suite: str = flag("versus")
    app: str | None = flag(None, "Built-in app of both sides [noop].")
    rounds: Annotated[
        Rounds | None, rounds_option("Most rounds, each a fresh launch of both sides [20]")
    ] = None
    clients: tuple[RowText, ...] = flag((), "Rows: N aiohttp clients, raw:N connections [raw:100].")
    rate: float | None = flag(
        None, "Open loop at this rate; in windows, which are noisier.", takes=(0.1, MAX_RATE)
    )
    quick: bool = flag(False, "Measure at most 3 rounds of 4 s on each side.")
    slice_s: SliceTime | None = flag(None, "Length of a slice, 10ms to 2s [7 drains].", "--slice")
    seed: int = flag(1, "Seed of the orders of sides and requests.", takes=(0, MOST))
