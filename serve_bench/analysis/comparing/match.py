"""Which stored runs of two folders are compared, and which of their variants.

Pure. Rule: of runs that are alike the newest are compared. Variants are matched by name; the only
ones of two runs are matched though their names differ, with a note; else a person chooses. Rows are
matched where they are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any, Final, TypeVar

from serve_bench.analysis.comparing.values import SideRow
from serve_bench.analysis.statistics import variants
from serve_bench.core.axes import nearest
from serve_bench.core.errors import BadInput
from serve_bench.core.facts import HostFacts
from serve_bench.core.figures import counted
from serve_bench.core.result import Launch, Result
from serve_bench.core.schema import built
from serve_bench.core.suite_facts import AppOfSuite

_P = TypeVar("_P")  # the place of a row


def match_variants(
    a: Result, b: Result, chosen: tuple[str | None, str | None], where: tuple[str, str]
) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the pairs of variants to compare, and sentences about what has no partner.

    Raises BadInput if `chosen` has no such variant, none is in both runs, or both are the same."""
    mine, theirs = variants(a), variants(b)
    for name, known, flag in ((chosen[0], mine, "a"), (chosen[1], theirs, "b")):
        if name is not None and name not in known:
            words = f"no variant {name!r} in that run{nearest(name, known)}"
            raise BadInput(f"--variant-{flag}: {words}; it has {', '.join(known)}")
    pairs = [(name, name) for name in mine if name in theirs]
    if chosen != (None, None):
        first = chosen[0] or _only(mine, str(chosen[1]), "a")
        pairs = [(first, chosen[1] or _only(theirs, str(chosen[0]), "b"))]
    elif not pairs and len(mine) == len(theirs) == 1:
        note = f"one variant a run, matched though named {mine[0]} and {theirs[0]}"
        return [(mine[0], theirs[0])], [note]
    if not pairs:
        words = f"{where[0]} has {', '.join(mine)}, {where[1]} has {', '.join(theirs)}"
        raise BadInput(f"no variant is in both runs: {words}; --variant-a and --variant-b choose")
    if a.run == b.run and any(name == other for name, other in pairs):
        way = "--variant-a and --variant-b choose two of its variants"
        if len(mine) == 1:
            way = f"it has one variant, {mine[0]}: nothing to compare"
        raise BadInput(f"{where[0]} and {where[1]} are the same run: {way}")
    if chosen != (None, None):
        return pairs, []
    left = [f"A alone has variant {name}" for name in mine if name not in theirs]
    left += [f"B alone has variant {name}" for name in theirs if name not in mine]
    return pairs, left


def _only(known: Sequence[str], other: str, flag: str) -> str:
    """Return the variant for which none was chosen: the same name, or the only one."""
    if len(known) == 1:
        return known[0]
    if other in known:
        return other
    raise BadInput(f"--variant-{flag}: choose one of {', '.join(known)}")


@dataclass(frozen=True)
class Subject:
    """What a run measures, by the words that it was started with."""

    command: str
    app: str  # of several sides or services all
    suite: str  # where it has a name beside these

    def __str__(self) -> str:
        """Render as `micro noop`, `shop.py:app`, `versus noop, optimized against default`."""
        names = dict.fromkeys((self.command, self.app))
        words = " ".join(name for name in names if name not in ("", "run"))
        if self.suite.startswith(self.command):  # scale_chain
            return self.suite
        return f"{words}, {self.suite}" if self.suite else words


def subject_of(result: Result) -> Subject:
    """Return what a stored run measures, by its command, apps or URLs, and suite."""
    run, asked = result.run, result.run.asked
    sides = asked.sides
    if asked.urls:
        apps = [] if sides else list(asked.urls)
    else:
        apps = [_file_name(part.target) for part in sides or [asked]]
    apps += [str(trial.cell["url"]) for trial in result.trials if "url" in trial.cell]
    app = ", ".join(filter(None, dict.fromkeys(apps)))
    if sides and "tax" not in run.suite:
        name = " against ".join(side.label for side in reversed(sides))
    else:
        name = _file_name(asked.name)
    known = (run.command, app, *(("versus",) if "tax" in run.suite else ()))
    return Subject(run.command, app, "" if name in known else name)


def _file_name(path: str) -> str:
    """Return the last part of a path: `noop`; of a user's own app `shop.py:app`."""
    return path.rpartition("/")[2]


# The newest runs of two folders that are alike.


@dataclass(frozen=True)
class RunPair:
    """Two runs that are compared, and the folder of each."""

    of: str  # what both measured, where there are several pairs
    where: tuple[str, str]
    runs: tuple[Result, Result]
    notes: tuple[str, ...]  # of which runs they are the newest


@dataclass(frozen=True)
class _Alike:
    """Runs of a subject that are alike, by folder, the newest first."""

    subject: Subject
    newest: Result
    sides: tuple[dict[str, Result], dict[str, Result]] = field(default_factory=lambda: ({}, {}))


def pair_runs(
    a: Mapping[str, Result], b: Mapping[str, Result], force: bool
) -> tuple[list[RunPair], list[str], list[str]]:
    """Pair the newest runs of each subject that are alike; `force` ignores differences.

    Returns the pairs, a sentence about each run that is unlike those of the other side, and a
    sentence about each that is a comparison by itself or whose subject is on one side alone."""
    groups: list[_Alike] = []
    alone: list[str] = []
    runs = [(index, where, run) for index, side in enumerate((a, b)) for where, run in side.items()]
    for index, where, run in sorted(runs, key=lambda entry: entry[2].run.started_at, reverse=True):
        if run.run.two_sided:
            alone.append(f"{where} is a run of {run.run.command}, a comparison by itself")
            continue
        subject = subject_of(run)
        of_it = (group for group in groups if group.subject == subject)
        alike = (group for group in of_it if force or not list_differences(group.newest, run))
        group = next(alike, None)
        if group is None:
            group = _Alike(subject, run)
            groups.append(group)
        group.sides[index][where] = run
    pairs, unlike_runs = [], []
    for group in groups:
        if all(group.sides):
            (where_a, run_a), (where_b, run_b) = (next(iter(side.items())) for side in group.sides)
            notes = tuple(
                f"{letter}: the newest of {len(side)} runs ({next(iter(side))})"
                for letter, side in zip("AB", group.sides, strict=True)
                if len(side) > 1
            )
            pairs.append(RunPair(str(group.subject), (where_a, where_b), (run_a, run_b), notes))
            continue
        here, there = (0, 1) if group.sides[0] else (1, 0)
        where = next(iter(group.sides[here]))
        others = [like for like in groups if like.subject == group.subject and like.sides[there]]
        if not others:
            alone.append(f"{group.subject} is in {'AB'[here]} alone ({where})")
        elif here == 1 or all(map(all, (like.sides for like in others))):  # else those say it
            other = next(iter(others[0].sides[there]))
            words = "; ".join(map(str, list_differences(others[0].newest, group.newest)))
            unlike_runs.append(f"{where} is unlike {other} ({group.subject}): {words}")
    return pairs, unlike_runs, alone


# In what two stored runs are unlike. What changes a figure by itself (the host, Ray, the load)
# forbids a comparison; what may (another kernel of the same line, another release of the tool) is a
# warning. What is compared on purpose, variants and cells, is no difference.

SIZES_ALIKE: Final = 0.05
"""Memory of one kind of host differs by what its firmware and kernel keep: 1 to 3 %. Sizes that are
sold differ by a third and more."""

#: Facts of a host that set its speed. Of a cgroup the quota counts, not the cores behind it alone.
HOST: Final = (
    ("cpu", "CPU"),
    ("machine", "machine"),
    ("logical_cores", "cores"),
    ("usable_cores", "usable cores"),
    ("cpu_quota_cores", "CPU quota"),
    ("governor", "CPU governor"),
)
SIZES: Final = (("memory_bytes", "memory"), ("memory_limit_bytes", "memory limit"))

#: Of a suite: what is no setting of the load, or is matched by itself (variants, cells, rows).
NO_SETTING: Final = frozenset(
    """name variants cells rows ladder launches seed urls worlds backends x_axis master_addr
    master_port output_file_path replicas address sample slo load_on""".split()
)


@dataclass(frozen=True)
class Difference:
    """Something that is not the same in both runs; `what` in words, both values as text."""

    what: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.what} {self.a} against {self.b}"


def unlike(a: Result, b: Result, versions: Sequence[Mapping[str, str]]) -> Iterator[Difference]:
    """Yield what forbids a comparison: hosts, Ray versions (`versions` of A and B), suites."""
    yield from unlike_hosts(a.run.host, b.run.host)
    ray, other = (version.get("ray") for version in versions)  # None of a service that was there
    if ray and other and ray != other:
        yield Difference("Ray", ray, other)
    if a.run.command != b.run.command:
        yield _difference("command", a.run.command, b.run.command)
    mine, theirs = a.run.suite, b.run.suite
    for name in mine:
        if name in theirs and name not in NO_SETTING:
            yield from _settings(name, mine[name], theirs[name])
    places = ["from this host"] * 2
    for side, on in enumerate(run.asked.load_on for run in (a.run, b.run)):
        if on is not None:
            places[side] = f"from {on.nodes or 'all'} nodes of {on.address or 'its cluster'}"
    if places[0] != places[1]:
        yield Difference("load", *places)


def list_differences(a: Result, b: Result) -> list[Difference]:
    """List in what two runs are unlike, apps too; Ray's version is left out."""
    return [*unlike_apps(a, b), *unlike(a, b, ({}, {}))]


def unlike_rows(a: Mapping[_P, SideRow], b: Mapping[_P, SideRow]) -> tuple[Difference, ...]:
    """Return the differences between rows of the same name: another rate or body."""
    matched_by, chosen_by_engine = ("label", "client", "run"), ("processes",)
    differences: dict[str, Difference] = {}
    for place in (place for place in a if place in b):
        mine, theirs = (asdict(side[place].row) for side in (a, b))
        for name in mine:
            if name not in (*matched_by, *chosen_by_engine) and mine[name] != theirs[name]:
                found = _difference(name, mine[name], theirs[name])
                differences.setdefault(name, replace(found, what=f"{found.what} of rows"))
    return tuple(differences.values())


def unlike_axes(a: Iterable[SideRow], b: Iterable[SideRow]) -> Iterator[Difference]:
    """Yield each axis of which no value is on both sides."""

    def axes(side: SideRow) -> dict[str, Any]:
        return {**side.cell, "row": side.row.label, "client": side.row.client}

    sides = [[*map(axes, rows)] for rows in (a, b)]
    for axis in dict.fromkeys(name for rows in sides for row in rows for name in row):
        mine, theirs = ({_shown(row.get(axis)): axis for row in rows} for rows in sides)
        if not mine.keys() & theirs.keys():
            yield Difference(axis, *(", ".join(few([*values])) for values in (mine, theirs)))


def unlike_apps(a: Result, b: Result) -> Iterator[Difference]:
    """Yield in what two apps of a user differ: target, or folder without a common deployment."""
    mine, theirs = a.run.asked.app, b.run.asked.app
    if isinstance(mine, str) or isinstance(theirs, str):
        return
    names = [{part.name for part in app.deployments} for app in (mine, theirs)]
    targets = [_file_name(app.target) for app in (mine, theirs)]
    if targets[0] != targets[1]:
        yield Difference("app", *targets)
    elif all(names) and not names[0] & names[1] and mine.folder != theirs.folder:
        yield Difference("folder of the app", mine.folder, theirs.folder)


def check_alike(
    a: Result,
    b: Result,
    pairs: Sequence[tuple[str, str]],
    rows: tuple[Mapping[_P, SideRow], Mapping[_P, SideRow]],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what forbids a comparison of these variants and rows, and what casts doubt on it."""
    versions = [[read_versions(a, mine), read_versions(b, other)] for mine, other in pairs]
    found = [
        *(difference for pair in versions for difference in unlike(a, b, pair)),
        *unlike_rows(*rows),
    ]
    doubts = (doubt for pair in versions for doubt in describe_doubts(a, b, pair))
    return tuple(dict.fromkeys(map(str, found))), tuple(dict.fromkeys(doubts))


def describe_doubts(a: Result, b: Result, versions: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    """List what may make the runs unlike, as warnings of one line."""
    doubts = []
    mine, theirs = a.run.host, b.run.host
    if mine.id and theirs.id and mine.id != theirs.id:
        doubts.append(
            "the hosts have different names: intervals know how launches differ, not how two "
            "hosts of one kind do (a container has another name each time)"
        )
    pairs: list[tuple[str, object, object]] = [
        ("kernel", mine.kernel, theirs.kernel),
        ("Python", versions[0].get("python"), versions[1].get("python")),
        ("serve-bench", a.run.tool_version, b.run.tool_version),
    ]
    for what, old, other in pairs:
        if old and other and old != other and not (what == "kernel" and _line(old) != _line(other)):
            doubts.append(f"not the same: {_difference(what, old, other)}")
    return (*doubts, *(f"not the same: {what}" for what in unlike_apps(a, b)))


def read_versions(result: Result, *names: str) -> dict[str, str]:
    """Return the versions that launches of these variants prove; several are joined."""
    launches = (launch for launch in result.launches if launch.variant.name in names)
    versions = (launch.proved.versions.items() for launch in launches)
    return _join((name, value) for name, value in chain(*versions) if value)


def _join(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Join the different values of each name by "and"."""
    values: dict[str, dict[str, None]] = {}
    for name, value in pairs:
        values.setdefault(name, {})[value] = None
    return {name: " and ".join(several) for name, several in values.items()}


# What was measured, as launches prove it: the app's commit and sources, the packages beside it.

MOST_CHANGES: Final = 8
"""Packages that are named in a text; the JSON forms name all."""


def read_software(launches: Iterable[Launch]) -> dict[str, str]:
    """Return the commit, sources and packages that launches prove, by name.

    Names are `app commit`, `app sources` and those of packages; different values are joined."""
    found: list[tuple[str, str]] = []
    for proof in (launch.proved for launch in launches):
        app = proof.app
        changes = f" ({counted(app.changes, 'uncommitted change')})" if app.changes else ""
        found += [("app commit", f"{app.commit[:7]}{changes}")] if app.commit else []
        found += [("app sources", app.sources[:8])] if app.sources else []
        parts = (text.partition("==") for text in proof.packages)
        found += [(name, version) for name, _, version in parts]
    return _join(found)


def software_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """List in what two results of `read_software` differ: `protobuf 6.33 -> 7.1`.

    What one of them does not have at all (commit, sources, packages) is passed over."""
    app = ("app commit", "app sources")
    names = [name for name in app if name in before and name in after]
    if any(name not in app for name in before) and any(name not in app for name in after):
        names += sorted({*before, *after} - {*app})
    pairs = ((name, before.get(name, "none"), after.get(name, "none")) for name in names)
    return [f"{name} {old} -> {other}" for name, old, other in pairs if old != other]


def few(changes: Sequence[str]) -> list[str]:
    """Return the first MOST_CHANGES of them, and `3 more` for the remaining."""
    more = len(changes) - MOST_CHANGES
    return [*changes[:MOST_CHANGES], *([f"{more} more"] if more > 0 else [])]


def unlike_hosts(a: HostFacts, b: HostFacts) -> Iterator[Difference]:
    """Yield in what two hosts differ that sets their speed; nothing of an unknown host."""
    if HostFacts() in (a, b):
        return
    for name, what in HOST:
        if getattr(a, name) != getattr(b, name):
            yield _difference(what, getattr(a, name), getattr(b, name))
    for name, what in SIZES:
        mine, theirs = getattr(a, name) or 0, getattr(b, name) or 0
        if abs(mine - theirs) > SIZES_ALIKE * max(mine, theirs):
            sizes = (f"{size / 2**30:.1f} GiB" if size else "none" for size in (mine, theirs))
            yield Difference(what, *sizes)
    if a.kernel and b.kernel and _line(a.kernel) != _line(b.kernel):
        yield _difference("kernel", a.kernel, b.kernel)


def _line(kernel: object) -> str:
    """Return `Linux 6.8` of `Linux 6.8.0-45-generic`: what sets scheduler and network stack."""
    match = re.match(r"\S+ \d+\.\d+", str(kernel))
    return match.group() if match else str(kernel)


def _settings(name: str, a: Any, b: Any) -> Iterator[Difference]:
    """Yield in what two values of a setting differ, down to the parts that do."""
    of_app = name.split()[-1] == "app"
    if of_app and isinstance(a, Mapping) != isinstance(b, Mapping):
        apps = (built(AppOfSuite, {"app": app or ""}, name) for app in (a, b))
        yield _difference(name, *(_file_name(part.target) for part in apps))
    elif of_app and isinstance(a, Mapping):  # its code may differ
        yield from _settings("request", a.get("asked"), b.get("asked"))
        yield from _settings("argument", *((app.get("config") or {}).get("args") for app in (a, b)))
    elif isinstance(a, Mapping) and isinstance(b, Mapping):
        for part in dict.fromkeys((*a, *b)):
            yield from _settings(f"{name} {part}", a.get(part), b.get(part))
    elif a != b and (a or b):
        yield _difference(name, a, b)


UNITS: Final = {"_per_s": "/s", "_s": " s", "_ms": " ms"}
"""Of what the names of settings end in."""


def _difference(name: str, a: object, b: object) -> Difference:
    """Describe two values of a recorded name: `window_s` is a window in seconds."""
    ending = next((ending for ending in UNITS if name.endswith(ending)), "")
    units = (UNITS[ending] if ending and isinstance(value, int | float) else "" for value in (a, b))
    texts = (f"{_shown(value)}{unit}" for value, unit in zip((a, b), units, strict=True))
    return Difference(name.removesuffix(ending).replace("_", " "), *texts)


def _shown(value: object) -> str:
    match value:
        case None | "":
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case Mapping():
            text = " ".join(f"{name} {_shown(part)}" for name, part in value.items())
        case list() | tuple():
            text = ", ".join(map(_shown, value))
        case _:
            text = str(value)
    text = text or "none"
    return text if len(text) <= 60 else text[:57] + "..."
