"""Programs asked for their version, each once and for a few seconds at most."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 10.0


@dataclass(frozen=True)
class Said:
    """What a program said: its version, or why there is none; and all its words."""

    version: str | None
    why: str = ""
    text: str = ""


def where(name: str) -> str | None:
    """A program on PATH, else beside this interpreter, where pip puts them."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def said_by(words: Sequence[str], pattern: str) -> Said:
    """Runs a program and finds its version by the first group of a pattern."""
    try:
        ran = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        return Said(None, (error.strerror or "cannot be run").lower())
    except subprocess.TimeoutExpired:
        return Said(None, f"no answer in {TIMEOUT_S:.0f} s")
    text = ran.stdout + ran.stderr
    found = re.search(pattern, text)
    if found is not None:
        return Said(found[1], text=text)
    first = next((line.strip() for line in text.splitlines() if line.strip()), "it said nothing")
    return Said(None, first[:100], text)
