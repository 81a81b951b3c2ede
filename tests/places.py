"""Where the tests' files lie."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parent.parent
FORMATS: Final = TOP / "tests" / "formats"
GOLDEN: Final = TOP / "tests" / "golden"


def environment(folder: Path) -> None:
    """An environment of Python: its interpreter is a script that starts this one."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
