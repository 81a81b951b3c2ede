"""The records of a run, and the Result that they add up to.

Rule: a record says what was measured or what went wrong, never what follows from it. Means,
percentiles, ratios and warnings are made by analysis/statistics.py each time: new ones apply to all
files. Facts beside figures are in facts.py, lines of JSON in record_lines.py, files in store/.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias, TypeVar

from msgspec import Meta, structs

from serve_bench.core.errors import FormatError
from serve_bench.core.facts import (
    ClientFacts,
    CourseFacts,
    DeploymentLimits,
    HostFacts,
    LaunchProof,
    ProbeSlices,
    ProfileFacts,
    ServeMetricsFacts,
    SettledFacts,
    TrialFlags,
    TrialSeconds,
    TrialUsage,
    WaitsFacts,
    WaterfallFacts,
)
from serve_bench.core.histogram import Histogram, HistogramFacts
from serve_bench.core.load_result import Counts, Warmup
from serve_bench.core.numbers import Amount, Count
from serve_bench.core.schema import built
from serve_bench.core.suite_facts import SuiteFacts
from serve_bench.core.suite_facts import VariantUsed as VariantUsed
from serve_bench.core.traffic import Row

FORMAT_VERSION: Final = 2
"""Version of the records. Only files of this version are read. Kinds and fields may be added within
a version: a reader passes over what it does not know. Any other change raises the version."""

_T = TypeVar("_T")
JsonObject: TypeAlias = Mapping[str, Any]
Better: TypeAlias = Literal["higher", "lower"]


@dataclass(frozen=True)
class PlannedTrial:
    """One trial that the run means to measure. `round` counts launches of a variant, from 1."""

    key: str
    round: Count
    variant: str
    cell: JsonObject
    row: Row


@dataclass(frozen=True)
class Metric:
    """A measured quantity: one value for each window, or a histogram (`Histogram.encode()`)."""

    unit: str  # "requests/s", "ns", "%", "MB"
    better: Better
    windows: Annotated[tuple[Amount, ...], Meta(min_length=1)] | None = None
    histogram: HistogramFacts | None = None

    def __post_init__(self) -> None:
        if (self.windows is None) == (self.histogram is None):
            raise ValueError("a metric holds either windows or a histogram")
        if self.histogram is not None and self.histogram["unit"] != self.unit:
            raise ValueError(f"its unit is {self.unit}, and another in its histogram")

    @cached_property
    def values(self) -> Histogram:
        """The histogram, decoded once, not to be changed; empty for a metric of windows."""
        return Histogram() if self.histogram is None else Histogram.decode(self.histogram)


@dataclass(frozen=True)
class Run:
    """Line one: the request, the tool, the host. Times are UTC, ISO 8601."""

    KIND: ClassVar[str] = "run"
    id: str
    argv: tuple[str, ...]
    command: str
    started_at: str
    tool_version: str
    git_commit: str | None = None
    suite: JsonObject = field(default_factory=dict)
    plan: tuple[PlannedTrial, ...] = ()
    host: HostFacts = field(default_factory=HostFacts)
    format: int = FORMAT_VERSION

    @cached_property
    def asked(self) -> SuiteFacts:
        """The typed part of its suite. Raises FormatError."""
        return built(SuiteFacts, self.suite, "run.suite")

    def part(self, name: str, kind: type[_T]) -> _T:
        """Read a part of its suite that its kind of run always has. Raises FormatError."""
        return built(kind, self.suite.get(name), f"run.suite.{name}")

    @property
    def two_sided(self) -> bool:
        """Whether it compares two sides by itself, in rounds."""
        return "sides" in self.suite


@dataclass(frozen=True)
class Resume:
    """The run was resumed after its end or a break; the host state may have changed."""

    KIND: ClassVar[str] = "resume"
    argv: tuple[str, ...]
    started_at: str
    tool_version: str | None = None
    host: HostFacts = field(default_factory=HostFacts)
    rounds: Count | None = None  # the last that is planned from now on, if changed
    plan: tuple[PlannedTrial, ...] = ()  # of rounds that were added


@dataclass(frozen=True)
class RunStop:
    """The run ended before its planned rounds: nothing behind `after_round` is missing."""

    KIND: ClassVar[str] = "stop"
    after_round: Count
    of: Count
    why: Literal["settled", "budget", "failure"]
    at: str


@dataclass(frozen=True)
class Launch:
    """One start of a cluster: seconds of each phase, and the proof of what is engaged."""

    KIND: ClassVar[str] = "launch"
    id: str
    variant: VariantUsed
    round: Count
    started_at: str
    seconds: Mapping[str, Amount] = field(default_factory=dict)  # ray_init, serve_start, ...
    proof: JsonObject = field(default_factory=dict)
    paths: Mapping[str, str] = field(default_factory=dict)  # relative to the run's folder

    @cached_property
    def proved(self) -> LaunchProof:
        """The typed part of its proof. Raises FormatError."""
        return built(LaunchProof, self.proof, "launch.proof")


@dataclass(frozen=True)
class Deploy:
    """One change of the app. `in_place`: the replicas stayed and took over the new options."""

    KIND: ClassVar[str] = "deploy"
    launch: str
    cell: JsonObject
    seconds: Amount
    in_place: bool
    proof: JsonObject = field(default_factory=dict)
    settled: SettledFacts = field(default_factory=SettledFacts)  # before the first row


@dataclass(frozen=True)
class Trial(PlannedTrial):
    """One load run of one row. `metrics` holds nothing that only HTTP has."""

    KIND: ClassVar[str] = "trial"
    launch: str  # its id, empty without one
    started_at: str
    window_s: Amount
    warmup: Warmup
    metrics: Mapping[str, Metric]
    counts: Counts
    seconds: TrialSeconds
    client: ClientFacts = field(default_factory=ClientFacts)
    served: Mapping[str, Count] = field(default_factory=dict)  # requests by replica, where known
    flags: TrialFlags = field(default_factory=TrialFlags)
    usage: TrialUsage = field(default_factory=TrialUsage)
    serve_metrics: ServeMetricsFacts = field(default_factory=ServeMetricsFacts)
    #: By batch size the batches, and nanoseconds in the model (usage.ReplicaRequests).
    forward: Mapping[str, tuple[Count, Count]] = field(default_factory=dict)
    slots: Mapping[str, Count] = field(default_factory=dict)  # by deployment of the user's own app
    limits: Mapping[str, DeploymentLimits] = field(default_factory=dict)  # by deployment
    waits: WaitsFacts = field(default_factory=WaitsFacts)
    waterfall: WaterfallFacts = field(default_factory=WaterfallFacts)
    profiles: tuple[ProfileFacts, ...] = ()
    slices: ProbeSlices = field(default_factory=ProbeSlices)  # by time, for bounds of an SLO
    course: CourseFacts = field(default_factory=CourseFacts)  # of a timeline: each second of it

    @property
    def unanswered(self) -> int:
        """Requests of the windows without an end, those that were never sent too."""
        return self.counts.in_flight + self.counts.unsent

    @property
    def completed_in_windows(self) -> int:
        """Answers that came within the windows: what rates and figures per request are made of."""
        return (self.client.in_windows or self.counts).completed

    @property
    def ended_in_windows(self) -> int:
        """Requests that were answered or failed within the windows."""
        within = self.client.in_windows or self.counts
        return within.completed + within.failed_total

    def flagged(self, *names: str) -> Trial:
        """Return the trial with these flags set."""
        return replace(self, flags=structs.replace(self.flags, **dict.fromkeys(names, True)))


@dataclass(frozen=True)
class Failure:
    """Something went wrong. What is None is not known, or the failure is not bound to one."""

    KIND: ClassVar[str] = "failure"
    what: str  # "launch", "deploy", "trial", "worker", "teardown"
    message: str  # one line
    at: str
    key: str | None = None
    launch: str | None = None
    variant: str | None = None
    round: Count | None = None
    cell: JsonObject | None = None
    row: Row | None = None
    detail: tuple[str, ...] = ()  # the last lines that matter


@dataclass(frozen=True)
class Teardown:
    """The end of a cluster. `leftovers` names what was still there at the end."""

    KIND: ClassVar[str] = "teardown"
    launch: str
    seconds: Amount
    killed: Count
    clean: bool
    leftovers: tuple[str, ...] = ()


Record: TypeAlias = Run | Resume | Launch | Deploy | Trial | Failure | Teardown | RunStop
RECORDS: Final[dict[str, type[Record]]] = {
    kind.KIND: kind for kind in (Run, Resume, Launch, Deploy, Trial, Failure, Teardown, RunStop)
}


@dataclass(frozen=True)
class ReadWarning:
    """Something in the file was passed over; the message is one line and names the line."""

    code: str  # "cut-off", "broken-line", "unknown-kind"
    message: str


@dataclass(frozen=True)
class Result:
    """A whole run as read."""

    run: Run
    resumes: tuple[Resume, ...] = ()
    launches: tuple[Launch, ...] = ()
    deploys: tuple[Deploy, ...] = ()
    trials: tuple[Trial, ...] = ()  # the latest of each key
    profiled: tuple[Trial, ...] = ()  # which stand apart
    failures: tuple[Failure, ...] = ()  # those that no later Resume mended
    teardowns: tuple[Teardown, ...] = ()
    last: int | None = None  # round that is planned in the end; None: all
    stop: RunStop | None = None  # why it ended before its rounds; None: it did not, or was resumed
    warnings: tuple[ReadWarning, ...] = ()

    @property
    def plan(self) -> tuple[PlannedTrial, ...]:
        """The planned trials, after all resumptions and up to the last planned round."""
        all_planned = (
            *self.run.plan,
            *(planned for resume in self.resumes for planned in resume.plan),
        )
        return tuple(
            trial for trial in all_planned if self.last is None or trial.round <= self.last
        )

    @property
    def missing(self) -> tuple[PlannedTrial, ...]:
        """Planned trials that were not measured, in the order of the plan."""
        done = {trial.key for trial in self.trials}
        return tuple(planned for planned in self.plan if planned.key not in done)

    @property
    def broken(self) -> frozenset[str]:
        """Keys of trials whose figures enter no ratio, no knee, no history and no comparison.

        A failure that still counts is about them (a process of the cluster ended, load was lost),
        or they were broken off. A trial of which no request succeeded has no figures, and one
        failure that says so: how a service failed that was up is to be compared."""
        failed = Counter(failure.key for failure in self.failures if failure.key is not None)
        return frozenset(
            trial.key
            for trial in self.trials
            if trial.flags.interrupted or failed[trial.key] > (0 if trial.counts.completed else 1)
        )

    @property
    def complete(self) -> bool:
        """Whether all that was planned was measured, and no failure still counts."""
        return not self.missing and not self.failures


def result_of(records: Iterable[Record], warnings: Iterable[ReadWarning] = ()) -> Result:
    """Put records together, in the order of the file. Raises FormatError without a run."""
    all_records = tuple(records)
    if not all_records:
        raise FormatError("the file is empty: nothing was recorded")
    if not isinstance(all_records[0], Run):
        raise FormatError("line 1 is not the record of a run")
    last: int | None = None
    stop: RunStop | None = None
    sitting = 0  # how many times the run had been resumed when the record was written
    measured: dict[str, tuple[int, Trial, object]] = {}
    newest = dict[object, int]()  # in which sitting a row of a round was measured last
    profiled: dict[str, Trial] = {}
    failed: list[tuple[int, Failure]] = []
    kinds: dict[type[Record], list[Any]] = {kind: [] for kind in RECORDS.values()}
    for record in all_records:
        kinds[type(record)].append(record)
        if isinstance(record, Resume):
            sitting += 1
            last, stop = record.rounds or last, None
        elif isinstance(record, RunStop):
            last, stop = record.after_round, record
        elif isinstance(record, Trial) and record.flags.profiled:
            profiled[record.key] = record
        elif isinstance(record, Trial):
            place = record.round, str(record.cell), record.row.label, record.row.client
            measured[record.key], newest[place] = (sitting, record, place), sitting
        elif isinstance(record, Failure):
            failed.append((sitting, record))
    if all_records[0].two_sided:
        # Sides are compared that were measured beside each other: where a row that was resumed is
        # cut off, one side is new and another old.
        measured = {key: known for key, known in measured.items() if known[0] == newest[known[2]]}
    result = Result(
        run=all_records[0],
        resumes=tuple(kinds[Resume]),
        launches=tuple(kinds[Launch]),
        deploys=tuple(kinds[Deploy]),
        trials=tuple(trial for _, trial, _ in measured.values()),
        profiled=tuple(profiled.values()),
        teardowns=tuple(kinds[Teardown]),
        last=last,
        stop=stop,
        warnings=tuple(warnings),
    )
    failures: list[Failure] = []
    for failed_in, failure in failed:
        # All that a mended one kept from being measured is measured, some in a later sitting.
        sittings = [measured.get(key, (-1, None))[0] for key in _list_scope(failure, result.plan)]
        if -1 in sittings or max(sittings, default=-1) <= failed_in:
            failures.append(failure)
    return replace(result, failures=tuple(failures))


def _list_scope(failure: Failure, plan: Iterable[PlannedTrial]) -> list[str]:
    """List the keys that a failure kept from being measured, as far as it says."""
    if failure.key is not None:
        return [failure.key]
    if failure.what not in ("launch", "deploy"):
        return []
    return [
        planned.key
        for planned in plan
        if failure.variant in (None, planned.variant)
        and failure.round in (None, planned.round)
        and failure.cell in (None, planned.cell)
    ]


_SHORT: Final = {"max_batch_size": "bs", "max_ongoing_requests": "ongoing", "num_replicas": "rep"}


def cell_slug(cell: JsonObject) -> str:
    """Name a cell in a short word: `bs1-ongoing10000-rep8`; other axes follow as name=value."""
    first = [f"{short}{cell[name]}" for name, short in _SHORT.items() if name in cell]
    rest = [f"{name}={value}" for name, value in sorted(cell.items()) if name not in _SHORT]
    return "-".join(first + rest) or "app"


def trial_key(variant: str, round_: int, cell: JsonObject, row_label: str) -> str:
    """Return a trial's stable name: `default/r1/bs1-ongoing10000-rep8/100-connections`."""
    return f"{variant}/r{round_}/{cell_slug(cell)}/{row_label.replace(' ', '-')}"
