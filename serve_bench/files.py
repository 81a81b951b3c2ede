"""A file that is there whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from serve_bench.errors import BadInput


def write_whole(path: Path, content: str | bytes) -> None:
    """Writes beside it first and moves it to its place. Raises OSError, with nothing left over."""
    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def check_writable(path: Path) -> None:
    """Raises OSError when no file could be written at this path; leaves none."""
    if path.is_dir() or not path.name:
        raise IsADirectoryError(21, "is a folder")
    draft = path.with_name(f".{path.name}.part")
    draft.touch()
    draft.unlink()


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
