"""A file that is there whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import os
from pathlib import Path


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
