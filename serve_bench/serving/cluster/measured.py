"""What a launch measures: the commit and the sources of the user's app, and the packages beside it.

Rule: the interpreter that runs the app reports it, when the app is deployed; what cannot be found
out is left out.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

#: The time-out of a question to git.
GIT_TIMEOUT_S = 10.0

#: Sources of an app that are larger in all are not hashed.
MOST_BYTES = 64_000_000


def measured(sources: dict[str, list[str]]) -> dict[str, Any]:
    """Return the facts for the proof: packages; commit and digest of `sources` (by folder)."""
    facts: dict[str, Any] = {"packages": packages()}
    if sources:  # an app that comes with the tool has none
        folder, names = next(iter(sources.items()))  # the app's own folder is first
        facts["app"] = {**commit(folder, names), **digest(sources)}
    return facts


def packages() -> list[str]:
    """Return `name==version` of each distribution; of two of one name, the one found first."""
    found: dict[str, str] = {}
    for package in metadata.distributions():
        about = package.metadata
        if about["Name"] and about["Version"]:  # else a folder that is left of one
            found.setdefault(re.sub(r"[-_.]+", "-", about["Name"]).lower(), about["Version"])
    return sorted(f"{name}=={version}" for name, version in found.items())


def commit(folder: str, names: list[str]) -> dict[str, Any]:
    """Return the commit that a folder is checked out at, and how many files differ from it.

    These are files of the tree that git knows, and sources (`names`) that it does not know. Empty
    outside of git, and where git knows none of the sources.
    """
    try:
        head = _git(folder, "rev-parse", "HEAD")
        known = _git(folder, "ls-files", "-z", "--", *names)
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return {}
    if not known:
        return {}
    changes = len(changed.splitlines()) + len(names) - known.count("\0")
    return {"commit": head.strip(), "changes": changes}


def _git(folder: str, *words: str) -> str:
    """Return what git prints. Raises OSError or SubprocessError."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        ["git", "-C", folder, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=GIT_TIMEOUT_S,
        check=True,
        env={**env, "GIT_OPTIONAL_LOCKS": "0"},  # else `status` writes into the repository
    )
    return done.stdout.decode(errors="replace")


def digest(sources: dict[str, list[str]]) -> dict[str, Any]:
    """Return one SHA-256 of all sources and names, and their number; empty if any is unreadable."""
    whole, files = hashlib.sha256(), 0
    try:
        paths = [(name, Path(folder, name)) for folder in sources for name in sources[folder]]
        if sum(path.stat().st_size for _, path in paths) > MOST_BYTES:
            return {}
        for name, path in paths:
            content = path.read_bytes()
            whole.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape") + content)
            files += 1
    except OSError:
        return {}
    return {"sources": whole.hexdigest(), "files": files}
