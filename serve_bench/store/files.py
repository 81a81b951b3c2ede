"""Files that are there whole or not at all, and those that come with the tool."""

from __future__ import annotations

import contextlib
import os
import tomllib
from collections.abc import Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from serve_bench.core.axes import suggest
from serve_bench.core.errors import BadInput, RunFailed


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file by a draft beside it that is moved to its place; write to a pipe or device.

    Raises OSError, with nothing left over."""
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_bytes(data)  # there is nothing to move it to
        return
    draft = _make_draft(path)
    try:
        draft.write_bytes(data)
        os.replace(draft, path)
    except BaseException:  # Ctrl-C too
        draft.unlink(missing_ok=True)
        raise


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file that a command was asked for. Raises RunFailed when it cannot be written."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise RunFailed(f"{path}: cannot be written: {why(error)}") from None


def _make_draft(path: Path) -> Path:
    """Make an empty file beside `path`, under an unused name, with the rights of a new file."""
    for number in count():
        draft = path.with_name(f".{path.name}.{os.getpid()}-{number}.part")
        with contextlib.suppress(FileExistsError):
            draft.touch(exist_ok=False)
            return draft
    raise AssertionError("numbers do not end")


def check_writable(path: Path) -> None:
    """Raise OSError when no file could be written at this path; leave none behind."""
    if path.is_dir() or not path.name:
        raise IsADirectoryError(21, "is a folder")
    _make_draft(path).unlink()


def same_file(path: Path, other: Path) -> bool:
    """Return whether two paths mean one file, which need not exist; a device may be named twice."""
    return path.resolve() == other.resolve() and not path.is_char_device()


def check_reachable(path: Path, flag: str = "") -> None:
    """Raise BadInput where the system cannot say whether a path exists: too long, no permission.

    `flag` named the path, for the message."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        named = f"{flag}: {path}" if flag else str(path)
        raise BadInput(f"{named}: cannot be reached: {why(error)}") from None


def why(error: OSError) -> str:
    """Return the reason of a system's error in words, in lower case."""
    return (error.strerror or str(error)).lower()


def make_room(out: Path) -> tuple[Path, ...]:
    """Make the folders of a file, check that it can be written, and return the new folders.

    The innermost comes first. Raises BadInput."""
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
    """Remove folders, the innermost first, up to the first that holds anything."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


# The files that come with the tool: suites and profile recipes.
#
# In a checkout they stand beside the package, in an installed wheel inside it.

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped(folder: str) -> Path:
    """Return the shipped folder of that name ("scenarios", "profiles"). Raises BadInput if none."""
    for place in (_PACKAGE / folder, _PACKAGE.parent / folder):
        if place.is_dir():
            return place
    raise BadInput(f"the folder {folder!r} of serve-bench is missing: install it again")


def suite_file(name: str) -> Path:
    """Return the path of a suite: `name`, or that of a shipped one. BadInput lists these."""
    if name.endswith(".toml") or "/" in name:
        return Path(name)
    suites = {file.stem: file for file in shipped("scenarios").glob("*.toml")}
    if name not in suites:
        names = f"{', '.join(sorted(suites))}{suggest(name, suites)}"
        raise BadInput(f"--suite: no file {name!r}; a path, or one of: {names}")
    return suites[name]


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file. BadInput names the file and, in broken TOML, the place."""
    check_reachable(path)
    if path.exists() and not path.is_file():
        raise BadInput(f"{path}: is not a file")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors of Windows begin so
        str(content)  # a number in hexadecimal digits may be longer than Python writes
        return content
    except RecursionError:
        raise BadInput(f"{path}: not valid TOML: it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: not valid TOML: {error}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not UTF-8 text") from None
    except ValueError:  # Python reads no whole number of more than 4,300 digits
        raise BadInput(f"{path}: not valid TOML: a number has too many digits") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {(error.strerror or 'error').lower()}") from None
