"""Where the tests' files lie."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TOP: Final = Path(__file__).parent.parent
FORMATS: Final = TOP / "tests" / "formats"
GOLDEN: Final = TOP / "tests" / "golden"
