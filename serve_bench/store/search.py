"""The runs in folders and below them, as `serve-bench history` takes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from serve_bench.core.errors import BadInput
from serve_bench.core.result import Result
from serve_bench.store import RECORDS_FILE, read
from serve_bench.store.files import check_reachable, why


@dataclass(frozen=True)
class Unreadable:
    """A folder that cannot be read."""

    folder: Path
    reason: str
    written_at: str  # last write of its records, or else of the folder; "": not known either


def search(
    folders: Sequence[Path], read: Callable[[Path], Result] = read
) -> tuple[dict[Path, Result], list[Unreadable]]:
    """Read each run in these folders or below them once; list what `read` cannot read.

    Raises BadInput for a folder that is not there, and where there is no run at all."""
    runs: dict[Path, Result] = {}
    unreadable: list[Unreadable] = []
    seen: set[Path] = set()
    for folder in folders:
        check_reachable(folder)
        if not folder.exists():
            raise BadInput(f"{folder}: no such folder")
        check_reachable(folder / RECORDS_FILE)
        places, locked = _find_runs(folder)
        for place in (*locked, *places):
            if place.resolve() in seen:
                continue
            seen.add(place.resolve())
            reason = locked.get(place)
            try:
                if reason is None:
                    runs[place] = read(place)
            except BadInput as error:
                reason = str(error)
            if reason is not None:
                unreadable.append(Unreadable(place, reason, _find_written_at(place)))
    if not seen:
        names = ", ".join(map(str, folders))
        raise BadInput(f"{names}: no run found (no records.jsonl in it or below)")
    return runs, unreadable


def beside(folder: Path, most: int, read: Callable[[Path], Result] = read) -> dict[Path, Result]:
    """Read the newest `most` runs whose folders lie in this one, without the unreadable ones."""
    runs: dict[Path, Result] = {}
    places = [file for file in folder.glob(f"*/{RECORDS_FILE}") if file.is_file()]
    for place in sorted(places, key=lambda file: file.stat().st_mtime, reverse=True)[:most]:
        with suppress(BadInput):
            runs[place.parent] = read(place)
    return runs


def _find_runs(folder: Path) -> tuple[list[Path], dict[Path, str]]:
    """Find the folders of runs in a folder, and the folders that cannot be read, with the reason.

    A folder that holds a run holds no others; links are not followed."""
    if not folder.is_dir() or (folder / RECORDS_FILE).exists():
        return [folder], {}
    runs: list[Path] = []
    locked: dict[Path, str] = {}

    def lock(error: OSError) -> None:
        place = Path(error.filename or folder)
        locked[place] = f"{place}: cannot be read: {why(error)}"

    for place, folders, files in os.walk(folder, onerror=lock):
        folders.sort()
        if RECORDS_FILE in files:
            runs.append(Path(place))
            folders.clear()
    return runs, locked


def _find_written_at(place: Path) -> str:
    for path in (place / RECORDS_FILE, place):
        with suppress(OSError):
            written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            return written.isoformat(timespec="milliseconds")
    return ""
