"""py-spy beside one load: started before it, ended after it, its stacks kept in the run's folder.

Rule: a load with py-spy beside it is a repetition that is marked `profiled`, never a measured one.
What cannot be recorded is said in the record, and is no reason for the load to fail. One recording
belongs to profiler.py, which processes there are to server.py and processes.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.observing.processes import TARGETS
from serve_bench.observing.profiler import Recorded, Recording
from serve_bench.observing.pyspy import Options, ProfileFailed

FOLDER: Final = "profiles"

MOST_OF_A_ROLE: Final = 4
"""So many processes of a role are profiled at once: each py-spy needs a share of a core too."""

PROFILE_TARGETS: Final = ("proxy", "replica", "controller")


class Profilable(Protocol):
    """A process with its role, of our own launch or of another's."""

    @property
    def pid(self) -> int: ...

    @property
    def role(self) -> str: ...

    @property
    def title(self) -> str: ...


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


_P = TypeVar("_P", bound=Profilable)


def to_profile(processes: Sequence[_P], targets: Sequence[str]) -> list[_P]:
    """The processes of the targets, at most MOST_OF_A_ROLE of each role, lowest pid first."""
    chosen: list[_P] = []
    for role in dict.fromkeys(role for target in targets for role in TARGETS[target]):
        of_role = sorted((one for one in processes if one.role == role), key=lambda one: one.pid)
        chosen += of_role[:MOST_OF_A_ROLE]
    return chosen


@dataclass
class Profiling:
    """The recordings beside one load. `told`, after `stop`: one object for each process."""

    run_folder: Path
    key: str  # of the trial; the stacks lie in profiles/<key>
    mark: Mapping[str, str] = field(default_factory=dict)
    longest_s: float = 3600.0  # py-spy ends by itself some time after that
    told: list[dict[str, Any]] = field(default_factory=list)
    _recordings: list[tuple[Profilable, Recording]] = field(default_factory=list)

    @contextmanager
    def around(self, processes: Sequence[Profilable]) -> Iterator[None]:
        """Samples from before the block until its end; a block that fails leaves no stacks."""
        try:
            self.start(processes)
            yield
            self.stop()
        finally:
            for _, recording in self._recordings:
                recording.abandon()

    def start(self, processes: Sequence[Profilable]) -> None:
        """Starts a py-spy on each process, and waits until all of them sample."""
        place = self.run_folder / FOLDER / self.key
        if not place.resolve().is_relative_to(self.run_folder.resolve() / FOLDER):
            raise RunFailed(f"{self.key}: leads out of the folder of the run")
        for one in processes:
            out = place / f"{one.role}-{one.pid}.raw.txt"
            recording = Recording(one.pid, out, Options(), longest_s=self.longest_s, mark=self.mark)
            self._recordings.append((one, recording))
            recording.start()
        for _, recording in self._recordings:
            recording.wait_ready()

    @property
    def py_spies(self) -> list[int]:
        """The pids of the py-spys that run."""
        return [recording.py_spy_pid for _, recording in self._recordings if recording.running]

    def stop(self) -> None:
        """Ends the recordings: what each gave, or why it gave nothing."""
        for process, recording in self._recordings:
            about = {"pid": process.pid, "role": process.role, "title": process.title}
            try:
                self.told.append({**about, **self._kept(recording.stop(), recording)})
            except ProfileFailed as error:
                self.told.append({**about, "failed": str(error)})

    def _kept(self, recorded: Recorded, recording: Recording) -> dict[str, Any]:
        return {
            "path": str(recorded.path.relative_to(self.run_folder)),
            "samples": recorded.samples,
            "errors": recorded.errors,
            "seconds": round(recorded.seconds, 2),
            "rate": recording.options.rate,
            "notes": list(recorded.notes),
        }
