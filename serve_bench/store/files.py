"""A file that is there whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from itertools import count, takewhile
from pathlib import Path

from serve_bench.core.errors import BadInput


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes beside it first and moves it to its place; a pipe or a device is written to. Raises
    OSError, with nothing left over."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data)  # there is nothing to move it to
        return
    draft = _draft(path)
    try:
        draft.write_bytes(data)
        os.replace(draft, path)
    except BaseException:  # Ctrl-C too
        draft.unlink(missing_ok=True)
        raise


def _draft(path: Path) -> Path:
    """An empty file of a name that nothing had, beside `path`, with the rights of a new one."""
    for number in count():
        draft = path.with_name(f".{path.name}.{os.getpid()}-{number}.part")
        with contextlib.suppress(FileExistsError):
            draft.touch(exist_ok=False)
            return draft
    raise AssertionError("numbers do not end")


def check_writable(path: Path) -> None:
    """Raises OSError when no file could be written at this path; leaves none."""
    if path.is_dir() or not path.name:
        raise IsADirectoryError(21, "is a folder")
    _draft(path).unlink()


def same_file(one: Path, other: Path) -> bool:
    """Whether two names mean one file, which need not exist; a device may be named twice."""
    return one.resolve() == other.resolve() and not one.is_char_device()


def check_reachable(path: Path, flag: str = "") -> None:
    """BadInput for a path of which it cannot even be told whether it is there: too long a name, a
    folder that may not be entered. `flag`: that named it."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        named = f"{flag}: {path}" if flag else str(path)
        raise BadInput(f"{named}: cannot be reached: {why(error)}") from None


def why(error: OSError) -> str:
    """The reason in words."""
    return (error.strerror or str(error)).lower()


def make_room(out: Path) -> tuple[Path, ...]:
    """Makes the folders of a file, and sees that it can be written: the folders that are new, the
    innermost first. Raises BadInput."""
    folders = (out.parent, *out.parent.parents)
    new = tuple(takewhile(lambda folder: not folder.exists(), folders))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        check_writable(out)
    except OSError as error:
        remove_empty(new)
        raise BadInput(f"{out}: cannot be written: {why(error)}") from None
    return new


def remove_empty(folders: Sequence[Path]) -> None:
    """Removes folders, the innermost first; the first that holds anything stays, and all above."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
