"""What is looked at beside the load of a trial: processes, Serve's own metrics, stacks by py-spy.

`Inside.around(...)` wraps a load; what it found goes into the Trial by `Look.add_to`. Rule: nothing
here drives a load or judges a figure, and what cannot be looked at is said, never a reason for the
trial to fail. How each thing is looked at belongs to sampler.py, serve_metrics.py, profiler.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from serve_bench.errors import BadInput
from serve_bench.gpu import Gpus
from serve_bench.load_result import LoadResult
from serve_bench.processes import TARGETS
from serve_bench.profiler import Options, ProfileFailed, Recorded, Recording
from serve_bench.result import PlannedTrial, Trial
from serve_bench.sampler import Sampler, Watched, write_samples
from serve_bench.serve_metrics import Meter
from serve_bench.server import Process, Serving
from serve_bench.store import StoreError

SAMPLES_FILE: Final = "samples.jsonl"
PROFILES: Final = "profiles"

MOST_OF_A_ROLE: Final = 4
"""So many processes of a role are profiled at once: each py-spy needs a share of a core too."""

PROFILE_TARGETS: Final = ("proxy", "replica", "controller")


def parse_targets(text: str, flag: str) -> tuple[str, ...]:
    """`proxy,replica` as targets. BadInput names the flag and what is allowed."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in PROFILE_TARGETS:
            raise BadInput(
                f"{flag}: {name!r} is not allowed; it takes {', '.join(PROFILE_TARGETS)}, "
                "one or more, with commas"
            )
    return names


def keep_samples(folder: Path, samples: Sequence[dict[str, Any]]) -> None:
    """Appends samples to the run's samples.jsonl. Raises StoreError when it cannot."""
    try:
        write_samples(folder / SAMPLES_FILE, samples)
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreError(f"{folder / SAMPLES_FILE}: cannot write: {why}") from None


@dataclass
class Inside:
    """How a run looks inside. `profile` holds targets; empty means no profiled repetition."""

    folder: Path
    mark: Mapping[str, str] = field(default_factory=dict)
    sample: bool = True
    profile: tuple[str, ...] = ()
    metrics: bool = False  # wait for Serve's own metrics after each load
    longest_s: float = 3600.0  # py-spy ends by itself some time after that
    _gpus: Gpus | None = None
    _meter: Meter | None = None

    def deployed(self, serving: Serving) -> None:
        """A cell is deployed: its counters are new."""
        self._meter = None
        if self.metrics and serving.metrics_url is not None:
            behind_haproxy = any(one.role == "haproxy" for one in serving.processes())
            self._meter = Meter(
                serving.metrics_url, serving.metrics_interval_s, http=not behind_haproxy
            )

    @contextmanager
    def around(
        self, serving: Serving, planned: PlannedTrial, *, profiled: bool = False
    ) -> Iterator[Look]:
        """Looks from before a load until after it. py-spy samples before the load begins."""
        look = Look(self.folder, planned.key, self._meter)
        processes = serving.processes() if self.sample or profiled else []
        with ExitStack() as stack:
            if profiled:
                look.start_profiles(processes, self, planned.key)
                stack.callback(look.abandon_profiles)
            if self.metrics:
                look.serve_metrics = look.begin_metrics()
            if self.sample:
                self._gpus = self._gpus or Gpus()
                watched = [Watched(one.pid, one.role, one.title) for one in processes]
                watched += [Watched(pid, "py_spy", "py-spy") for pid in look.py_spies]
                managers = {p.pid: "haproxy" for p in processes if p.role == "haproxy_manager"}
                look.sampler = stack.enter_context(
                    Sampler(watched, gpus=self._gpus, parents=managers)
                )
            yield look
            look.stop_profiles()


@dataclass
class Look:
    """What is seen beside one load."""

    folder: Path
    key: str
    meter: Meter | None
    sampler: Sampler | None = None
    serve_metrics: dict[str, Any] | None = None  # None: not asked for
    _recordings: dict[int, tuple[Process, Recording]] = field(default_factory=dict)
    _profiles: list[dict[str, Any]] = field(default_factory=list)

    @property
    def py_spies(self) -> list[int]:
        """The pids of the py-spys that run."""
        return [one.py_spy_pid for _, one in self._recordings.values() if one.running]

    def begin_metrics(self) -> dict[str, Any]:
        """The state before the load: empty, or absent with the reason."""
        why = "this Ray names no metrics endpoint"
        if self.meter is not None:
            why = self.meter.begin() or ""
        return {"status": "absent", "why": why} if why else {}

    def add_to(self, trial: Trial, result: LoadResult) -> Trial:
        """The trial with all that was seen. Raises StoreError when samples cannot be written."""
        if self.sampler is not None:
            usage = self.sampler.summary(result.started_at_ns, result.duration_s)
            trial = replace(trial, usage=usage)
            keep_samples(self.folder, self.sampler.samples(self.key))
        if self.serve_metrics is not None:
            trial = replace(trial, serve_metrics=self._metrics(result))
        if self._profiles:
            flags = {**trial.flags, "profiled": True}
            trial = replace(trial, flags=flags, profiles=tuple(self._profiles))
        return trial

    def _metrics(self, result: LoadResult) -> dict[str, Any]:
        if self.meter is None or self.serve_metrics:
            return self.serve_metrics or {}
        total = result.total
        # A request that failed with no whole response may have arrived or not.
        unsure = total.failed_total + total.in_flight
        return self.meter.end(total.completed, total.completed + unsure)

    # ------------------------------------------------------------------------- profiles

    def start_profiles(self, processes: Sequence[Process], how: Inside, key: str) -> None:
        """Starts a py-spy on each process that the targets mean, and waits until all sample."""
        place = self.folder / PROFILES / key
        for one in _to_profile(processes, how.profile):
            recording = Recording(
                one.pid,
                place / f"{one.role}-{one.pid}.raw.txt",
                Options(),
                longest_s=how.longest_s,
                mark=how.mark,
            )
            self._recordings[one.pid] = (one, recording)
            recording.start()
        for _, recording in self._recordings.values():
            recording.wait_ready()

    def stop_profiles(self) -> None:
        """Ends the recordings; what each gave, or why it gave nothing, goes into the trial."""
        for process, recording in self._recordings.values():
            about = {"pid": process.pid, "role": process.role, "title": process.title}
            try:
                self._profiles.append({**about, **self._kept(recording.stop(), recording)})
            except ProfileFailed as error:
                self._profiles.append({**about, "failed": str(error)})

    def abandon_profiles(self) -> None:
        """Kills what still records (the load failed, or Ctrl-C)."""
        for _, recording in self._recordings.values():
            recording.abandon()

    def _kept(self, recorded: Recorded, recording: Recording) -> dict[str, Any]:
        return {
            "path": str(recorded.path.relative_to(self.folder)),
            "samples": recorded.samples,
            "errors": recorded.errors,
            "seconds": round(recorded.seconds, 2),
            "rate": recording.options.rate,
            "notes": list(recorded.notes),
        }


def _to_profile(processes: Sequence[Process], targets: tuple[str, ...]) -> list[Process]:
    """The processes of the targets, at most MOST_OF_A_ROLE of each role, lowest pid first."""
    chosen = []
    for role in dict.fromkeys(role for target in targets for role in TARGETS[target]):
        of_role = sorted((one for one in processes if one.role == role), key=lambda one: one.pid)
        chosen += of_role[:MOST_OF_A_ROLE]
    return chosen
