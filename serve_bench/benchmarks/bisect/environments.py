"""Versions of a package in environments of their own, and commits in worktrees of their own.

Rule: an environment is used only with the mark that was written when it was whole; what a kill left
half made is made anew. Worktrees last as long as a sitting, and the repository has none of them
afterwards. No index is named here: pip and uv have their own settings.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from serve_bench.benchmarks.bisect.search import SearchPoint
from serve_bench.core.errors import BadInput, RunFailed
from serve_bench.core.own_module import NOT_FROM_HERE
from serve_bench.store.files import write_whole

PINNED: Final = re.compile(r"([A-Za-z0-9][\w.-]*)(\[[\w,.-]+\])?==([A-Za-z0-9][\w.!+-]*)")
_NO_REASON: Final = ("hint:", "[notice]", "WARNING:")
UNDECLARED: Final = "jinja2"
"""What Serve 2.58 imports and `ray[serve]` does not ask for."""

MARK: Final = "serve-bench.json"
INSTALL_S: Final = 1800.0
ASK_S: Final = 120.0

#: Prints the packages of an interpreter that have a version in an index, and what makes it another.
_PACKAGES: Final = NOT_FROM_HERE + (
    "import sys, json, importlib.metadata as m; "
    "d = [(x.metadata['Name'], x.version) for x in m.distributions()"
    " if not x.read_text('direct_url.json')]; "
    "print(json.dumps([[sys.version, sys.prefix], sorted({(n, v) for n, v in d if n})]))"
)


class BrokenVersion(RunFailed):
    """A version that cannot be made; the message says why, in one line."""


class Made(NamedTuple):
    """Where a version is: its interpreter (None: that of the flags), the file of its app (None: as
    it was named)."""

    python: str | None = None
    file: str | None = None


class Versions(Protocol):
    """What is searched. `points`: from the good end to the bad one."""

    points: tuple[SearchPoint, ...]
    notes: tuple[str, ...]

    def begin(self, place: Path) -> None:
        """Before the first is made. `place`: a folder of this search alone."""

    def make(self, point: SearchPoint) -> Made:
        """Makes a version, or finds it made. Raises BrokenVersion."""

    def close(self) -> None:
        """Removes what is not kept."""


def _ran(words: Sequence[str], limit_s: float, cwd: Path | None = None) -> str:
    """What a program prints; its group ends with it. Raises BrokenVersion with its last words."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_") and k != "PYTHONPATH"}
    name = Path(words[0]).name
    try:
        process = subprocess.Popen(
            words,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise BrokenVersion(f"{name}: {(error.strerror or 'cannot be run').lower()}") from None
    try:
        out, err = process.communicate(timeout=limit_s)
    except BaseException as early:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(early, subprocess.TimeoutExpired):
            raise BrokenVersion(f"{name}: no end after {limit_s:g} s") from None
        raise
    if process.returncode:
        lines = [line.strip(" ×╰─▶│") for line in (err or out).splitlines()]
        reasons = [line for line in lines if line and not line.startswith(_NO_REASON)]
        raise BrokenVersion(
            f"{name}: {' '.join(reasons[-3:]) or f'exit code {process.returncode}'}"[:400]
        )
    return out


# ------------------------------------------------------------------- versions of a package


@dataclass
class Packages:
    """Versions of a package, each in an environment that is kept in `cache`.

    Of Ray: with packages of the day of its release. Of another package: with the Ray of the base
    interpreter, and its versions of all other packages that are needed.
    """

    package: str
    points: tuple[SearchPoint, ...]
    base: str
    cutoff: str | None
    extra: tuple[str, ...]
    cache: Path
    uv: str | None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        ends: tuple[str, str],
        base: str | None,
        cutoff: str | None,
        extra: Sequence[str],
        cache: Path,
        known: Sequence[str] = (),
    ) -> Packages:
        """From the values of --good and --bad. `known`: versions as an earlier sitting had them.
        Raises BadInput, and RunFailed where pip names no versions."""
        package, versions = _pinned(ends)
        for one in extra:
            if not re.match(r"[A-Za-z0-9]", one):
                raise BadInput(f"--with: {one!r} is not allowed; it takes a package, or FILE.txt")
            if one.endswith(".txt") and not Path(one).is_file():
                raise BadInput(f"--with: {one}: there is no such file")
        python, uv = base or sys.executable, shutil.which("uv")
        _read_date(cutoff)
        known = [*known] or _published(package.partition("[")[0], python)
        for flag, one in zip(("--good", "--bad"), versions, strict=True):
            if one not in known:
                newest = ", ".join(known[-8:])
                raise BadInput(f"{flag}: {package} has no version {one} here; the newest: {newest}")
        if versions[0] == versions[1]:
            raise BadInput(f"--good, --bad: both are {ends[0]}")
        first, last = (known.index(one) for one in versions)
        every = known[first : last + 1] if first < last else known[last : first + 1][::-1]
        notes: tuple[str, ...] = ()
        if uv is None and not (cutoff and _pip_cuts(python)):
            notes = ("without uv there is no cut-off date: packages are those of today",)
        points = tuple(SearchPoint(f"{package.partition('[')[0]}=={one}") for one in every)
        return cls(package, points, python, cutoff, tuple(extra), cache / "environments", uv, notes)

    def begin(self, place: Path) -> None:
        """Environments have a place that others use too."""

    def make(self, point: SearchPoint) -> Made:
        """An environment with this version, from the cache where it is there."""
        version = point.name.partition("==")[2]
        wanted, kept = [f"{self.package}=={version}"], []
        about, packages = json.loads(_ran([self.base, "-c", _PACKAGES], ASK_S))
        of_its_day = _plain(self.package) == "ray" and self.cutoff is None
        if _plain(self.package) == "ray":
            wanted.append(UNDECLARED)
        else:
            ray = [v for name, v in packages if _plain(name) == "ray"]
            wanted += [f"ray[serve]=={ray[0]}"] if ray else ["ray[serve]"]
            kept = [f"{n}=={v}" for n, v in packages if _plain(n) != _plain(self.package)]
        files = [Path(one).read_text("utf-8") for one in self.extra if one.endswith(".txt")]
        key = [wanted, self.extra, files, kept, self.cutoff, about, self.uv is None]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]
        place = self.cache / f"{_plain(self.package)}-{version}-{digest}"
        python = place / "bin" / "python"
        with _locked(self.cache, place.name):
            if not ((place / MARK).is_file() and python.exists()):
                print(f"making the environment of {point.name}", file=sys.stderr, flush=True)
                shutil.rmtree(place, ignore_errors=True)
                try:
                    cutoff = self._released(wanted[0]) if of_its_day else self.cutoff
                    self._install(place, python, wanted, kept, cutoff)
                    write_whole(place / MARK, json.dumps({"with": wanted, "cutoff": cutoff}))
                except BaseException:  # Ctrl-C too
                    shutil.rmtree(place, ignore_errors=True)
                    raise
        return Made(str(python))

    def close(self) -> None:
        """Environments are kept."""

    def _install(
        self, place: Path, python: Path, wanted: Sequence[str], kept: Sequence[str], cut: str | None
    ) -> None:
        asked = [*wanted]
        for one in self.extra:
            asked += ["-r", one] if one.endswith(".txt") else [one]
        if self.uv is not None:
            words = [self.uv, "pip", "install", "--quiet", "--python", str(python)]
            words += ["--exclude-newer", cut] if cut else []
            _ran([self.uv, "venv", "--quiet", "--python", self.base, str(place)], ASK_S)
        else:
            words = [self.base, "-m", "pip", "--python", str(python), "install", "--quiet"]
            words += ["--uploaded-prior-to", cut] if cut and _pip_cuts(self.base) else []
            _ran([self.base, "-m", "venv", "--without-pip", str(place)], ASK_S)
        if kept:
            file = place / "kept.txt"
            file.write_text("\n".join(kept), "utf-8")
            words += ["-c", str(file)]
        _ran([*words, *asked], INSTALL_S)

    def _released(self, pinned: str) -> str | None:
        """The date after the upload of a version's files, as uv records it in a lock; None without
        uv, or where the index does not tell."""
        if self.uv is None:
            return None
        words = [self.uv, "pip", "compile", "--quiet", "--no-deps", "--format", "pylock.toml"]
        file = self.cache / f".{os.getpid()}.in"
        self.cache.mkdir(parents=True, exist_ok=True)
        try:
            file.write_text(pinned, "utf-8")
            lock = _ran([*words, "--python", self.base, str(file)], ASK_S)
        finally:
            file.unlink(missing_ok=True)
        times = re.findall(r"upload-time = (\d{4}-\d\d-\d\d)", lock)
        return str(date.fromisoformat(max(times)) + timedelta(days=1)) if times else None


def _pinned(ends: tuple[str, str]) -> tuple[str, tuple[str, str]]:
    matches = [PINNED.fullmatch(one.strip()) for one in ends]
    for flag, text, match in zip(("--good", "--bad"), ends, matches, strict=True):
        if match is None:
            raise BadInput(
                f"{flag}: {text!r} is not allowed; it takes PACKAGE==VERSION, or a commit for both"
            )
    good, bad = (match for match in matches if match is not None)
    if _plain(good[1]) != _plain(bad[1]):
        raise BadInput(f"--good, --bad: are {good[1]} and {bad[1]}: name one package")
    extras = good[2] or bad[2] or ("[serve]" if _plain(good[1]) == "ray" else "")
    return f"{good[1]}{extras}", (good[3], bad[3])


def _plain(name: str) -> str:
    """A package's name without extras, as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()


def _read_date(text: str | None) -> None:
    if text is None:
        return
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise BadInput(f"--cutoff: {text!r} is not allowed; it takes a date: 2026-01-31") from None
    if day > datetime.now(UTC).date() + timedelta(days=1):
        raise BadInput(f"--cutoff: {text} is yet to come")


def _published(package: str, python: str) -> list[str]:
    """The versions that pip could install, the oldest first."""
    first: BrokenVersion | None = None
    for one in dict.fromkeys((python, sys.executable)):
        try:
            text = _ran([one, "-m", "pip", "index", "versions", package], ASK_S)
        except BrokenVersion as error:
            first = first or error
            continue
        if (match := re.search(r"^Available versions: (.+)$", text, re.M)) is not None:
            return match[1].split(", ")[::-1]
    raise RunFailed(f"no versions of {package}: {first or 'pip names none'}")


def _pip_cuts(python: str) -> bool:
    """Whether pip takes a cut-off date (from 26.0 on)."""
    with contextlib.suppress(BrokenVersion):
        return "--uploaded-prior-to" in _ran([python, "-m", "pip", "install", "--help"], ASK_S)
    return False


@contextlib.contextmanager
def _locked(folder: Path, name: str) -> Iterator[None]:
    """Waits until no other bisect makes this environment. Raises RunFailed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f".{name}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise RunFailed(f"{folder}: {(error.strerror or 'error').lower()}") from None


# ------------------------------------------------------------------------------- commits


@dataclass
class Commits:
    """Commits of the repository that holds an app's `file`, each in a worktree."""

    top: Path
    file: Path
    points: tuple[SearchPoint, ...]
    notes: tuple[str, ...] = ()
    place: Path = Path()

    @classmethod
    def of(cls, ends: tuple[str, str], file: Path) -> Commits:
        """From the values of --good and --bad; those between along the first parents. Raises
        BadInput."""
        try:
            top = Path(_git(file.resolve().parent, "rev-parse", "--show-toplevel").strip())
        except BrokenVersion as error:
            raise BadInput(f"--of: {file}: is in no repository of git: {error}") from None
        good, bad = (
            _commit(top, one, flag) for flag, one in zip(("--good", "--bad"), ends, strict=True)
        )
        if good == bad:
            raise BadInput(f"--good, --bad: both are the commit {good[:12]}")
        older, newer = (bad, good) if _above(top, bad, good) else (good, bad)
        if not _above(top, older, newer):
            raise BadInput(f"--good: {ends[0]} is no ancestor of --bad {ends[1]}, nor the reverse")
        log = ("log", "--first-parent", "--reverse", "--format=%H%x09%s")
        lines = _git(top, *log, "-1", older) + _git(top, *log, f"{older}..{newer}")
        every = tuple(
            SearchPoint(one[:12], title)
            for one, _, title in (line.partition("\t") for line in lines.splitlines())
        )
        notes: tuple[str, ...] = ()
        if _git(top, "status", "--porcelain", "--untracked-files=no").strip():
            notes = ("uncommitted changes are left out: commits are measured",)
        points = every if older == good else every[::-1]
        return cls(top, file.resolve().relative_to(top.resolve()), points, notes)

    def begin(self, place: Path) -> None:
        """Worktrees that a killed sitting left are removed."""
        self.place = place
        self.close()

    def make(self, point: SearchPoint) -> Made:
        """A worktree of this commit."""
        tree = self.place / point.name
        if not tree.exists():
            _git(self.top, "worktree", "add", "--quiet", "--detach", str(tree), point.name)
        if not (tree / self.file).is_file():
            raise BrokenVersion(f"{self.file}: not in this commit")
        return Made(file=str(tree / self.file))

    def close(self) -> None:
        """Removes the worktrees, and what the repository knows of them."""
        for tree in self.place.glob("*"):
            with contextlib.suppress(BrokenVersion):
                _git(self.top, "worktree", "remove", "--force", "--force", str(tree))
        shutil.rmtree(self.place, ignore_errors=True)


def _git(top: Path, *words: str) -> str:
    """What git prints; no hook of the repository is run."""
    return _ran(["git", "-c", "core.hooksPath=/dev/null", "-C", str(top), *words], ASK_S)


def _commit(top: Path, name: str, flag: str) -> str:
    with contextlib.suppress(BrokenVersion):
        if not name.startswith("-"):
            return _git(top, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
    raise BadInput(f"{flag}: {name!r} is no commit of {top}")


def _above(top: Path, older: str, newer: str) -> bool:
    with contextlib.suppress(BrokenVersion):
        _git(top, "merge-base", "--is-ancestor", older, newer)
        return True
    return False
