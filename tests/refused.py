"""How bad input is refused, for the tests of everything that reads input."""

from collections.abc import Callable
from typing import Any

import pytest

from serve_bench.core.errors import BadInput


def refusal(act: Callable[..., object], *given: Any, **named: Any) -> str:
    """Read what is said of this input; it is one line."""
    with pytest.raises(BadInput) as refused:
        act(*given, **named)
    assert "\n" not in str(refused.value)
    return str(refused.value)
