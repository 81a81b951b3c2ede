"""Types of fixtures by short names: of those in conftest.py, and of two that pytest has."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

Call: TypeAlias = Callable[..., tuple[str, str]]
Refuses: TypeAlias = Callable[[str, str], None]
Capture: TypeAlias = pytest.CaptureFixture[str]
Patch: TypeAlias = pytest.MonkeyPatch
