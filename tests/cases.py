"""What tests of every room share: tables of cases, refusals, and types of fixtures."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import pytest

from serve_bench.core.errors import BadInput

#: Of fixtures in conftest.py, and of two that pytest has.
Call: TypeAlias = Callable[..., tuple[str, str]]
Refuses: TypeAlias = Callable[[str, str], None]
Capture: TypeAlias = pytest.CaptureFixture[str]
Patch: TypeAlias = pytest.MonkeyPatch

T = TypeVar("T")


def cases(names: str, *rows: Any, ids: Any = None) -> pytest.MarkDecorator:
    """Run a test for each row, which has a value for each name, as in `cases("a, b", (1, 2))`."""
    return pytest.mark.parametrize(names, rows, ids=ids)


def sure(value: T | None) -> T:
    """Return the value, which must be there."""
    assert value is not None
    return value


def refusal(act: Callable[..., object], *given: Any, **named: Any) -> str:
    """Read what is said of this bad input; it is one line."""
    with pytest.raises(BadInput) as refused:
        act(*given, **named)
    assert "\n" not in str(refused.value)
    return str(refused.value)
