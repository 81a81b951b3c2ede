"""Tables of cases, for tests that run once for each."""

from typing import Any, TypeVar

import pytest


def cases(names: str, *rows: Any, ids: Any = None) -> pytest.MarkDecorator:
    """Run a test for each row, which has a value for each name, as in `cases("a, b", (1, 2))`."""
    return pytest.mark.parametrize(names, rows, ids=ids)


T = TypeVar("T")


def sure(value: T | None) -> T:
    """Return the value, which must be there."""
    assert value is not None
    return value
