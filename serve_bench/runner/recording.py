"""Recordings for `serve-bench profile`: names of files, recording, reading stacks back.

Rule: no file without content. analysis/stacks.py interprets stacks, report/ draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import isdir, isfile
from pathlib import Path
from typing import Final

from serve_bench.analysis.stacks import Stacks, merged, parse_raw
from serve_bench.core.errors import BadInput
from serve_bench.observing.processes import ServeProcess
from serve_bench.observing.profiler import Recording, Recordings, SpyOptions, record

RAW_SUFFIX: Final = ".raw.txt"
"""How the name of a file of raw stacks ends; their flamegraph lies beside it, as .svg."""


@dataclass(frozen=True)
class Wish:
    """What to record."""

    duration_s: float
    options: SpyOptions
    out: Path | None = None  # the flamegraph; None: named by role and pid

    def place(self, role: str, pid: int, several: bool) -> Path:
        """Name the flamegraph of a process; with several, each name has role and pid."""
        if self.out is None:
            return Path(f"profile-{role}-{pid}.svg")
        if not several:
            return self.out
        stem = self.out.name.removesuffix(self.out.suffix)
        named = stem if f"-{stem}".endswith(f"-{role}") else f"{stem}-{role}"
        return self.out.with_name(f"{named}-{pid}.svg")


@dataclass(frozen=True)
class Profile:
    """The profile of a process."""

    pid: int
    role: str
    place: Path  # of its flamegraph
    stacks: Stacks
    notes: tuple[str, ...]
    samples: int


def record_all(
    processes: Sequence[ServeProcess],
    wish: Wish,
    on_progress: Callable[[float], None],
    mark: Mapping[str, str],
) -> Recordings[Profile]:
    """Record Python processes at once, with raw stacks beside the place of each flamegraph.

    The caller draws the flamegraphs. `mark` goes into the environment of each py-spy, by which it
    is found and ended if this process is killed.
    """
    several = len(processes) > 1
    places = {process.pid: wish.place(process.role, process.pid, several) for process in processes}
    recordings = [
        Recording(pid, raw_beside(place), wish.options, wish.duration_s, mark)
        for pid, place in places.items()
    ]
    outcome = record(recordings, wish.duration_s, on_progress)
    roles = {process.pid: process.role for process in processes}
    done = tuple(
        Profile(
            recorded.pid,
            roles[recorded.pid],
            places[recorded.pid],
            read_stacks(recorded.path),
            recorded.notes,
            recorded.samples,
        )
        for recorded in outcome.done
    )
    return Recordings(done, outcome.failed, outcome.interrupted)


def raw_beside(place: Path) -> Path:
    """Return the file of raw stacks beside that of a flamegraph."""
    return place.with_name(place.name.removesuffix(place.suffix) + RAW_SUFFIX)


def read_stacks(file: Path) -> Stacks:
    """Read the raw stacks of a file. BadInput if it cannot be read or has other content."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {(error.strerror or 'error').lower()}") from None
    stacks = parse_raw(text, str(file))
    if not stacks:
        raise BadInput(f"{file}: holds no stacks")
    return stacks


def find_stacks(word: str, run: Path | None, target: tuple[str, ...]) -> tuple[Stacks, list[Path]]:
    """Find the stacks of a file, or of all files below a folder; return them with their paths.

    With `run`, `word` may also be (the beginning of) a trial's key, such as
    `optimized/r1/bs1-ongoing1-rep1/8-clients`; the folder of a run means all its profiles. Of a
    folder, only files of the `target` roles count. BadInput names the paths that were tried.
    """
    places = [Path(word)] if run is None else [run / "profiles" / word, run / word, Path(word)]
    for place in places:
        if isfile(place):  # unlike Path.is_file, false for a name that is too long
            return read_stacks(place), [place]
        if isdir(place):
            files = [
                file for file in sorted(place.rglob(f"*{RAW_SUFFIX}")) if _has_role(file, target)
            ]
            if not files:
                raise BadInput(f"{place}: holds no profiles of {' or '.join(target)}")
            return merged(read_stacks(file) for file in files), files
    looked = " nor ".join(dict.fromkeys(str(place) for place in places))
    raise BadInput(f"no profile {word!r}: neither a file nor a folder at {looked}")


def _has_role(file: Path, roles: tuple[str, ...]) -> bool:
    """Return whether a file, `replica-12.raw.txt` or `out-replica-12.raw.txt`, has a role."""
    stem = file.name.removesuffix(RAW_SUFFIX).rpartition("-")[0]
    return any(stem == role or stem.endswith(f"-{role}") for role in roles)


def by_role(profiles: Sequence[Profile]) -> Mapping[str, list[Profile]]:
    """Group profiles by role."""
    out: dict[str, list[Profile]] = {}
    for profile in profiles:
        out.setdefault(profile.role, []).append(profile)
    return out
