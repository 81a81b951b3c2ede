"""From a wish ("the replicas, 20 s") to files and stacks: names of files, recording, reading back.

The part of `serve-bench profile` that is no flag and no print. Rule: a file is there only when it
holds something. What stacks mean belongs to analysis/stacks.py, how they look to report/.
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
from serve_bench.observing import profiler as perf
from serve_bench.observing.host import cpu_ns
from serve_bench.observing.processes import ServeProcess
from serve_bench.observing.profiler import (
    FORMATS,
    Recorded,
    Recording,
    Recordings,
    SpyOptions,
    record,
)
from serve_bench.store.files import make_room, read_toml, remove_empty, shipped, why, write_whole

if TYPE_CHECKING:
    from serve_bench.nodes.crew import WatchCrew


# --------------------------------------------------------------------------------------------------
# Recipes: what to record with py-spy and how, as a person writes them in profiles/*.toml. Pure.

FLAGS: Final = ("native", "gil", "idle", "threads", "subprocesses", "nonblocking")
TARGETS: Final = ("proxy", "replica", "controller", "all")
RECIPE_FORMATS: Final = ("flamegraph", "speedscope", "chrometrace", "raw")
LONGEST_S: Final = 3600.0
FASTEST: Final = 1000  # samples a second; py-spy falls behind long before


@dataclass(frozen=True)
class Recipe:
    """One recipe. `what` and `why` are for people; None means that the recipe does not say."""

    what: str
    why: str
    target: str
    duration_s: float | None = None
    rate: int | None = None
    format: str | None = None
    flags: tuple[str, ...] = ()


def read_recipe(data: Mapping[str, Any], where: str) -> Recipe:
    """A recipe from the content of a TOML file. BadInput names the key and what is allowed."""
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
"""Formats that are made from raw stacks, and so come with tables; the others are py-spy's own."""


@dataclass(frozen=True)
class Wish:
    """What to record and where to. `out` None: a name is made from role and pid."""

    duration_s: float
    options: SpyOptions
    format: str = "flamegraph"
    out: Path | None = None

    @property
    def suffix(self) -> str:
        """How the file's name ends; a page instead of an SVG where `out` says so."""
        if self.format == "flamegraph" and self.out is not None and self.out.suffix == ".html":
            return ".html"
        return FORMATS[self.format]

    def place(self, role: str, pid: int, several: bool, host: str = "") -> Path:
        """The file of one process. With several, role and pid come into each name, and before them
        the `host` of a process of another node."""
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
    """What came of one process: `stacks` None for py-spy's own formats. `host`: of another node."""

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
    """Records Python processes at once. Raw stacks are left in `place` with the ending of raw; a
    flamegraph is drawn from them by the caller. `mark` is put into the environment of each py-spy,
    so that it ends should this process be killed."""
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
    done = [_profile(one, roles[one.pid], wish, several, raw) for one in outcome.done]
    return Recordings(tuple(done), tuple(outcome.failed), outcome.interrupted)


def _profile(recorded: Recorded, role: str, wish: Wish, several: bool, raw: bool) -> Profile:
    stacks = read_stacks(recorded.path) if raw else None
    place = wish.place(role, recorded.pid, several)
    return Profile(recorded.pid, role, place, stacks, recorded.notes, recorded.samples)


@dataclass(frozen=True)
class _Place:
    """Where the files of a process of a node go: `out` what is brought, `drawn` what is shown."""

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
    """Records processes of nodes that `crew` watches at once, and leaves the files as `record_all`
    does. What comes from the nodes comes into `folder` first. Raises BadInput when a file cannot be
    made."""
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
        told = crew.record(pids, wish.options, format, wish.duration_s, folder, on_progress)
        done = []
        for one in told.done:
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
    return Recordings(tuple(done), told.failed, told.interrupted)


def _keep(place: Path, brought: Path) -> None:
    """Moves what was brought to its place. Raises RunFailed."""
    try:
        write_whole(place, brought.read_bytes())
    except OSError as error:
        raise RunFailed(f"{place}: cannot be written: {why(error)}") from None
    brought.unlink()


def raw_beside(place: Path) -> Path:
    """Where the raw stacks of a drawn profile lie: beside it, with the ending of raw."""
    if place.name.endswith(RAW_SUFFIX) or place.suffix in (".txt", ".raw"):
        return place
    return place.with_name(place.name.removesuffix(place.suffix) + RAW_SUFFIX)


def record_native(process: ServeProcess, wish: Wish) -> tuple[float | None, Profile | None, str]:
    """CPU of a process that is no Python (% of a core), its stacks by perf, and what to say.

    The file holds raw stacks, as with py-spy. No perf, or none allowed: the CPU alone, and why.
    """
    before, began = cpu_ns(process.pid), time.perf_counter_ns()
    said, profile = "", None
    try:
        stacks = perf.record_perf(process.pid, wish.duration_s, wish.options.rate)
    except perf.PerfUnusable as error:
        said = str(error)
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
            said = "perf took no sample: it was idle"
    after, ended = cpu_ns(process.pid), time.perf_counter_ns()
    if before is None or after is None:
        raise RunFailed(f"process {process.pid} (haproxy) ended while it was looked at")
    return 100.0 * (after - before) / (ended - began), profile, said


# -------------------------------------------------------------------------------- reading


def layer_rules() -> LayerRules:
    """The shipped rules that split stacks by layer."""
    file = shipped("reference") / "layers.toml"
    return read_rules(read_toml(file), file.name)


def read_stacks(file: Path) -> Stacks:
    """Raw stacks of a file. BadInput when it cannot be read or holds something else."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {(error.strerror or 'error').lower()}") from None
    stacks = parse_raw(text, str(file))
    if not stacks:
        raise BadInput(f"{file}: holds no stacks")
    return stacks


def find_stacks(word: str, run: Path | None, target: tuple[str, ...]) -> tuple[Stacks, list[Path]]:
    """The stacks that a word means: a file of raw stacks, or a folder with some below it.

    With `run` it may also be (the beginning of) a trial's key, such as
    `optimized/r1/bs1-mcq1-rep1/8-clients`; a run's own folder stands for all its profiles. Of a
    folder, only files of the `target` roles are taken. BadInput says what was looked for.
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
    """Those with stacks, grouped."""
    out: dict[str, list[Profile]] = {}
    for one in profiles:
        if one.stacks is not None:
            out.setdefault(one.role, []).append(one)
    return out
