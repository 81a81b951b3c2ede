"""What is looked at beside the load of a trial: processes, counts of the app, metrics, stacks.

`Inside.around(...)` wraps a load; what it found goes into the Trial by `Look.add_to`. Rule: nothing
here drives a load or judges a figure, and what cannot be looked at is said, never a reason for the
trial to fail. How each thing is looked at belongs to sampler.py, core/usage.py, serve_metrics.py
and profiler.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from serve_bench.core.load_result import LoadResult
from serve_bench.core.result import PlannedTrial, Trial
from serve_bench.core.usage import BATCH_SIZE, Served, grown
from serve_bench.observing.profiler import Profiling, to_profile
from serve_bench.observing.sampler import Gpus, Sampler, sampler_of, write_samples
from serve_bench.observing.serve_metrics import Meter
from serve_bench.serving.server import Serving
from serve_bench.store import StoreError

SAMPLES_FILE: Final = "samples.jsonl"


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
    _gpus: Gpus | None = None
    _meter: Meter | None = None

    def deployed(self, serving: Serving) -> None:
        """A cell is deployed: its counters are new."""
        self._meter = None
        if self.metrics and serving.metrics_url is not None:
            behind_haproxy = any(one.role == "haproxy" for one in serving.processes())
            self._meter = Meter(
                serving.metrics_url, serving.spec.metrics_interval_s, http=not behind_haproxy
            )

    def loaded_between(self) -> None:
        """Requests have come that belong to no trial."""
        if self._meter is not None:
            self._meter.loaded_between()

    @contextmanager
    def around(
        self, serving: Serving, planned: PlannedTrial, *, profiled: bool = False
    ) -> Iterator[Look]:
        """Looks from before a load until after it. py-spy samples before the load begins."""
        look = Look(self.folder, planned.key, self._meter)
        processes = serving.processes() if self.sample or profiled else []
        with ExitStack() as stack:
            if profiled:
                look.profiling = Profiling(self.folder, planned.key, self.mark)
                chosen = to_profile(processes, self.profile)
                stack.enter_context(look.profiling.around(chosen))
            if self.metrics:
                look.serve_metrics = look.begin_metrics()
            if self.sample:
                self._gpus = self._gpus or Gpus()
                spies = look.profiling.py_spies if look.profiling is not None else ()
                look.sampler = stack.enter_context(sampler_of(processes, self._gpus, spies))
            before, model_before = serving.counts(), serving.forward_ns()
            yield look
            served = grown(before, serving.counts(), serving.replicas())
            in_model = grown(model_before, serving.forward_ns(), ())
            look.served = replace(served, forward_ns=in_model.batches)


@dataclass
class Look:
    """What is seen beside one load."""

    folder: Path
    key: str
    meter: Meter | None
    sampler: Sampler | None = None
    serve_metrics: dict[str, Any] | None = None  # None: not asked for
    profiling: Profiling | None = None
    served: Served = field(default_factory=Served)

    def begin_metrics(self) -> dict[str, Any]:
        """The state before the load: empty, or absent with the reason."""
        why = "this Ray names no metrics endpoint"
        if self.meter is not None:
            why = self.meter.begin() or ""
        return {"status": "absent", "why": why} if why else {}

    def add_to(self, trial: Trial, result: LoadResult) -> Trial:
        """The trial with all that was seen. Raises StoreError when samples cannot be written."""
        trial = replace(trial, served=self.served.by_replica, forward=self.served.forward)
        if (sizes := self.served.batch_sizes) is not None:
            trial = replace(trial, metrics={**trial.metrics, BATCH_SIZE: sizes})
        if self.sampler is not None:
            usage = self.sampler.summary(result.started_at_ns, result.duration_s)
            trial = replace(trial, usage=usage)
            keep_samples(self.folder, self.sampler.samples(self.key))
        if self.serve_metrics is not None:
            trial = replace(trial, serve_metrics=self._metrics(result))
        if self.profiling is not None:
            flags = {**trial.flags, "profiled": True}
            trial = replace(trial, flags=flags, profiles=tuple(self.profiling.told))
        return trial

    def _metrics(self, result: LoadResult) -> dict[str, Any]:
        if self.meter is None or self.serve_metrics:
            return self.serve_metrics or {}
        total = result.total
        # A request that failed with no whole response may have arrived or not.
        unsure = total.failed_total + total.in_flight
        return self.meter.end(total.completed, total.completed + unsure)
