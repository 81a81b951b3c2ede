"""The files that come with the tool: suites and profile recipes.

In a checkout they stand beside the package, in an installed wheel inside it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from serve_bench.core.errors import BadInput
from serve_bench.store.files import check_reachable

_PACKAGE = Path(__file__).resolve().parents[1]


def shipped(folder: str) -> Path:
    """The shipped folder of that name ("scenarios", "profiles"). Raises BadInput if it is gone."""
    for place in (_PACKAGE / folder, _PACKAGE.parent / folder):
        if place.is_dir():
            return place
    raise BadInput(
        f"the folder {folder!r} that comes with serve-bench is missing: install it again"
    )


def suite_file(name: str) -> Path:
    """A suite by path, or by the name of a shipped one. BadInput lists those that there are."""
    if name.endswith(".toml") or "/" in name:
        return Path(name)
    place = shipped("scenarios") / f"{name}.toml"
    if not place.exists():
        names = ", ".join(sorted(file.stem for file in place.parent.glob("*.toml")))
        raise BadInput(f"--suite: no file {name!r}; a path, or one of: {names}")
    return place


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file. BadInput names the file and, in broken TOML, the place."""
    check_reachable(path)
    if path.exists() and not path.is_file():
        raise BadInput(f"{path}: is not a file")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # editors of Windows begin so
    except RecursionError:
        raise BadInput(f"{path}: not valid TOML: it is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: not valid TOML: {error}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path}: not UTF-8 text") from None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {(error.strerror or 'error').lower()}") from None
