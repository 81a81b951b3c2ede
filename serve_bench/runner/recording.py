"""Recordings for `serve-bench profile`: recipes, names of files, recording, reading stacks back.

Rule: no file without content. analysis/stacks.py interprets stacks, report/ draws them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from serve_bench.analysis.stacks import LayerRules, Stacks, merged, parse_raw, read_rules, to_raw
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.nodes import Node, file_name
from serve_bench.observing.host import cpu_ns
from serve_bench.observing.perf import PerfUnusable, record_perf
from serve_bench.observing.processes import ServeProcess
from serve_bench.observing.profiler import (
    FORMATS,
    Recording,
    Recordings,
    SpyOptions,
    record,
)
from serve_bench.store.files import make_room, read_toml, remove_empty, shipped, why, write_whole

if TYPE_CHECKING:
    from serve_bench.nodes.crew import WatchCrew


# --------------------------------------------------------------------------------------------------
# Recipes: what to record with py-spy and how, as profiles/*.toml has them. Pure.

FLAGS: Final = ("native", "gil", "idle", "threads", "subprocesses", "nonblocking")
TARGETS: Final = ("proxy", "replica", "controller", "all")
RECIPE_FORMATS: Final = ("flamegraph", "speedscope", "chrometrace", "raw")
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
    format: str | None = None
    flags: tuple[str, ...] = ()


def read_recipe(data: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from the content of a TOML file. BadInput names the key and the allowed values."""
    known = ("what", "why", "target", "duration_s", "rate", "format", *FLAGS)
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
        target=one_of(data["target"], TARGETS, f"{where}: target"),
        duration_s=None if duration_s is None else duration(duration_s, f"{where}: duration_s"),
        rate=None if rate is None else sample_rate(rate, f"{where}: rate"),
        format=one_of(data["format"], RECIPE_FORMATS, f"{where}: format")
        if "format" in data
        else None,
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


# --------------------------------------------------------------------------------------------------

RAW_SUFFIX: Final = FORMATS["raw"]
DERIVED: Final = ("flamegraph", "raw")
"""Formats that are made from raw stacks, and so have tables; py-spy writes the others."""


@dataclass(frozen=True)
class Wish:
    """What to record, and where to. `out` None: the name is made of role and pid."""

    duration_s: float
    options: SpyOptions
    format: str = "flamegraph"
    out: Path | None = None

    @property
    def suffix(self) -> str:
        """The suffix of the file; that of a page instead of an SVG if `out` has it."""
        if self.format == "flamegraph" and self.out is not None and self.out.suffix == ".html":
            return ".html"
        return FORMATS[self.format]

    def place(self, role: str, pid: int, several: bool, host: str = "") -> Path:
        """The file of one process. With several, each name has role and pid, after the `host` of a
        process of another node."""
        own = f"{host}-{role}" if host else role
        if self.out is None:
            return Path(f"profile-{own}-{pid}{self.suffix}")
        if not several:
            return self.out
        stem = self.out.name.removesuffix(self.suffix).removesuffix(self.out.suffix)
        first = stem[: -len(role)].removesuffix("-") if f"-{stem}".endswith(f"-{role}") else stem
        named = f"{first}-{own}" if first else own
        return self.out.with_name(f"{named}-{pid}{self.suffix}")


@dataclass(frozen=True)
class Profile:
    """The profile of one process. `stacks`: None in a format of py-spy's own. `host`: of another
    node."""

    pid: int
    role: str
    place: Path
    stacks: Stacks | None
    notes: tuple[str, ...] = ()
    samples: int = 0
    host: str = ""

    @property
    def who(self) -> str:
        """The process in a title or a table."""
        return f"{self.pid} on {self.host}" if self.host else str(self.pid)


def record_all(
    processes: Sequence[ServeProcess],
    wish: Wish,
    on_progress: Callable[[float], None],
    mark: Mapping[str, str],
) -> Recordings[Profile]:
    """Records Python processes at once. Raw stacks are kept beside `place`, with the suffix of raw;
    the caller draws a flamegraph from them. `mark` goes into the environment of each py-spy, by
    which it is found and ended if this process is killed."""
    several = len(processes) > 1
    raw = wish.format in DERIVED
    recordings = []
    for one in processes:
        place = wish.place(one.role, one.pid, several)
        out = raw_beside(place) if raw else place
        format = "raw" if raw else wish.format
        recordings.append(Recording(one.pid, out, wish.options, format, wish.duration_s, mark))
    outcome = record(recordings, wish.duration_s, on_progress)
    roles = {one.pid: one.role for one in processes}
    done = []
    for recorded in outcome.done:
        role, stacks = roles[recorded.pid], read_stacks(recorded.path) if raw else None
        place = wish.place(role, recorded.pid, several)
        done.append(Profile(recorded.pid, role, place, stacks, recorded.notes, recorded.samples))
    return Recordings(tuple(done), outcome.failed, outcome.interrupted)


@dataclass(frozen=True)
class _Place:
    """The files of a process of a node: `out` for what the node sends, `drawn` for the picture."""

    host: str
    role: str
    drawn: Path
    out: Path


def record_on_nodes(
    crew: WatchCrew,
    processes: Sequence[tuple[Node, ServeProcess]],
    wish: Wish,
    on_progress: Callable[[float], None],
    folder: Path,
) -> Recordings[Profile]:
    """Records processes of watched nodes at once, with files as those of `record_all`. `folder`
    holds what the nodes send until it is moved. Raises BadInput if a file cannot be created."""
    raw = wish.format in DERIVED
    pids: dict[Node, list[int]] = {}
    places: dict[tuple[Node, int], _Place] = {}
    for node, process in processes:
        pids.setdefault(node, []).append(process.pid)
        host = file_name(node, [one for one in crew.nodes if one.alive])
        drawn = wish.place(process.role, process.pid, len(processes) > 1, host)
        out = raw_beside(drawn) if raw else drawn
        places[node, process.pid] = _Place(host, process.role, drawn, out)
    new = make_room(next(iter(places.values())).out)
    try:
        format = "raw" if raw else wish.format
        recordings = crew.record(pids, wish.options, format, wish.duration_s, folder, on_progress)
        done = []
        for one in recordings.done:
            place = places[one.node, one.pid]
            _keep(place.out, one.file)
            stacks = read_stacks(place.out) if raw else None
            done.append(
                Profile(
                    one.pid, place.role, place.drawn, stacks, one.notes, one.samples, place.host
                )
            )
    finally:
        remove_empty(new)
    return Recordings(tuple(done), recordings.failed, recordings.interrupted)


def _keep(place: Path, source: Path) -> None:
    """Moves a file from a node to its place. Raises RunFailed."""
    try:
        write_whole(place, source.read_bytes())
    except OSError as error:
        raise RunFailed(f"{place}: cannot be written: {why(error)}") from None
    source.unlink()


def raw_beside(place: Path) -> Path:
    """The file of raw stacks beside that of a drawn profile."""
    if place.name.endswith(RAW_SUFFIX) or place.suffix in (".txt", ".raw"):
        return place
    return place.with_name(place.name.removesuffix(place.suffix) + RAW_SUFFIX)


def record_native(process: ServeProcess, wish: Wish) -> tuple[float | None, Profile | None, str]:
    """CPU of a process that is not Python (% of a core), its profile by perf, and a note.

    The file holds raw stacks, as with py-spy. Without perf, or the right to use it: the CPU alone,
    and why.
    """
    before, began = cpu_ns(process.pid), time.perf_counter_ns()
    note, profile = "", None
    try:
        stacks = record_perf(process.pid, wish.duration_s, wish.options.rate)
    except PerfUnusable as error:
        note = str(error)
        time.sleep(max(0.0, min(1.0, wish.duration_s) - (time.perf_counter_ns() - began) / 1e9))
    else:
        if stacks:
            place = wish.place(process.role, process.pid, False)
            try:
                write_whole(raw_beside(place), to_raw(stacks))
            except OSError as error:
                raise RunFailed(f"{place}: cannot be written: {why(error)}") from None
            profile = Profile(
                process.pid, process.role, place, stacks, samples=sum(stacks.values())
            )
        else:
            note = "perf took no sample: it was idle"
    after, ended = cpu_ns(process.pid), time.perf_counter_ns()
    if before is None or after is None:
        raise RunFailed(f"process {process.pid} (haproxy) ended while it was looked at")
    return 100.0 * (after - before) / (ended - began), profile, note


# -------------------------------------------------------------------------------- reading


def layer_rules() -> LayerRules:
    """The shipped rules that split stacks by layer."""
    file = shipped("reference") / "layers.toml"
    return read_rules(read_toml(file), file.name)


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
        if place.is_file():
            return read_stacks(place), [place]
        if place.is_dir():
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
    """The profiles with stacks, by role."""
    out: dict[str, list[Profile]] = {}
    for one in profiles:
        if one.stacks is not None:
            out.setdefault(one.role, []).append(one)
    return out
