"""Recordings for `serve-bench profile`: recipes, names of files, recording, reading stacks back.

Rule: no file without content. analysis/stacks.py interprets stacks, report/ draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os.path import isdir, isfile
from pathlib import Path
from typing import Any, Final

from serve_bench.analysis.stacks import Stacks, merged, parse_raw
from serve_bench.core.errors import BadInput
from serve_bench.observing.processes import TARGETS, ServeProcess
from serve_bench.observing.profiler import Recording, Recordings, SpyOptions, record

# Recipes: what to record with py-spy and how, as profiles/*.toml has them. Pure.

FLAGS: Final = ("native", "gil", "idle")
LONGEST_S: Final = 3600.0
FASTEST: Final = 1000  # samples a second; py-spy falls behind long before


@dataclass(frozen=True)
class Recipe:
    """One recipe. `what` and `why` are for people; None: the recipe has no value."""

    what: str
    why: str
    target: str
    duration_s: float | None = None
    rate: int | None = None
    flags: tuple[str, ...] = ()


def read_recipe(data: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from the content of a TOML file. BadInput names the key and the allowed values."""
    known = ("what", "why", "target", "duration_s", "rate", *FLAGS)
    for name in data:
        if name not in known:
            raise BadInput(f"{where}: unknown key {name!r}; allowed: {', '.join(known)}")
    for name in ("what", "why", "target"):
        if not isinstance(data.get(name), str):
            raise BadInput(f"{where}: {name} is needed, a text")
    for name in FLAGS:
        if not isinstance(data.get(name, False), bool):
            raise BadInput(f"{where}: {name} takes true or false")
    duration_s, rate = data.get("duration_s"), data.get("rate")
    return Recipe(
        what=data["what"],
        why=data["why"],
        target=one_of(data["target"], tuple(TARGETS), f"{where}: target"),
        duration_s=None if duration_s is None else duration(duration_s, f"{where}: duration_s"),
        rate=None if rate is None else sample_rate(rate, f"{where}: rate"),
        flags=tuple(name for name in FLAGS if data.get(name, False)),
    )


def one_of(value: object, allowed: tuple[str, ...], where: str) -> str:
    """The value if it is one of those; BadInput otherwise."""
    if value not in allowed:
        raise BadInput(f"{where}: {value!r} is not allowed; it takes {', '.join(allowed)}")
    return str(value)


def duration(value: object, where: str) -> float:
    """Seconds to record, 0.1 to an hour."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(f"{where}: {value!r} is not a number of seconds")
    if not 0.1 <= value <= LONGEST_S:
        raise BadInput(f"{where}: {value} is not allowed; it takes 0.1 to {LONGEST_S:.0f} seconds")
    return float(value)


def sample_rate(value: object, where: str) -> int:
    """Samples a second, 1 to 1000."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= FASTEST:
        raise BadInput(f"{where}: {value!r} is not allowed; it takes 1 to {FASTEST} a second")
    return value


RAW_SUFFIX: Final = ".raw.txt"
"""How the name of a file of raw stacks ends; their flamegraph lies beside it, as .svg."""


@dataclass(frozen=True)
class Wish:
    """What to record, and where to. `out` None: the name is made of role and pid."""

    duration_s: float
    options: SpyOptions
    out: Path | None = None

    def place(self, role: str, pid: int, several: bool) -> Path:
        """The flamegraph of one process. With several, each name has role and pid."""
        if self.out is None:
            return Path(f"profile-{role}-{pid}.svg")
        if not several:
            return self.out
        stem = self.out.name.removesuffix(self.out.suffix)
        named = stem if f"-{stem}".endswith(f"-{role}") else f"{stem}-{role}"
        return self.out.with_name(f"{named}-{pid}.svg")


@dataclass(frozen=True)
class Profile:
    """The profile of one process: its stacks, and the place of its flamegraph."""

    pid: int
    role: str
    place: Path
    stacks: Stacks
    notes: tuple[str, ...]
    samples: int


def record_all(
    processes: Sequence[ServeProcess],
    wish: Wish,
    on_progress: Callable[[float], None],
    mark: Mapping[str, str],
) -> Recordings[Profile]:
    """Records Python processes at once. Raw stacks are kept beside the place of the flamegraph,
    which the caller draws. `mark` goes into the environment of each py-spy, by which it is found
    and ended if this process is killed."""
    several = len(processes) > 1
    places = {one.pid: wish.place(one.role, one.pid, several) for one in processes}
    recordings = [
        Recording(pid, raw_beside(place), wish.options, wish.duration_s, mark)
        for pid, place in places.items()
    ]
    outcome = record(recordings, wish.duration_s, on_progress)
    roles = {one.pid: one.role for one in processes}
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
    """The file of raw stacks beside that of a flamegraph."""
    return place.with_name(place.name.removesuffix(place.suffix) + RAW_SUFFIX)


def read_stacks(file: Path) -> Stacks:
    """Raw stacks of a file. BadInput if it cannot be read or has other content."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {(error.strerror or 'error').lower()}") from None
    stacks = parse_raw(text, str(file))
    if not stacks:
        raise BadInput(f"{file}: holds no stacks")
    return stacks


def find_stacks(word: str, run: Path | None, target: tuple[str, ...]) -> tuple[Stacks, list[Path]]:
    """The stacks of a file, or of all files below a folder, by its path.

    With `run`, `word` may also be (the beginning of) a trial's key, such as
    `optimized/r1/bs1-ongoing1-rep1/8-clients`; the folder of a run means all its profiles. Of a
    folder, only files of the `target` roles count. BadInput names the paths that were tried.
    """
    places = [Path(word)] if run is None else [run / "profiles" / word, run / word, Path(word)]
    for place in places:
        if isfile(place):  # unlike Path.is_file, false for a name that is too long
            return read_stacks(place), [place]
        if isdir(place):
            files = [file for file in sorted(place.rglob(f"*{RAW_SUFFIX}")) if _of(file, target)]
            if not files:
                raise BadInput(f"{place}: holds no profiles of {' or '.join(target)}")
            return merged(read_stacks(file) for file in files), files
    looked = " nor ".join(dict.fromkeys(str(place) for place in places))
    raise BadInput(f"no profile {word!r}: neither a file nor a folder at {looked}")


def _of(file: Path, roles: tuple[str, ...]) -> bool:
    """`replica-1234.raw.txt` is of a replica, and so is `out-replica-1234.raw.txt`."""
    stem = file.name.removesuffix(RAW_SUFFIX).rpartition("-")[0]
    return any(stem == role or stem.endswith(f"-{role}") for role in roles)


def by_role(profiles: Sequence[Profile]) -> Mapping[str, list[Profile]]:
    """The profiles by role."""
    out: dict[str, list[Profile]] = {}
    for one in profiles:
        out.setdefault(one.role, []).append(one)
    return out
