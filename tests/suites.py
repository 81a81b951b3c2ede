"""Suites of files and of flags over them, for tests."""

from collections.abc import Mapping
from typing import Any

from serve_bench.core.content import Content
from serve_bench.core.plan import Suite
from serve_bench.spec.suite import Around, read_suite


def suite_with(
    data: Mapping[str, Any] | None = None,
    file: str = "x.toml",
    around: Around | None = None,
    *,
    matrix: Mapping[str, Any] | None = None,
    cell: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    **flags: Any,
) -> Suite:
    """Make the suite of a file, with flags over it by their keys; axes in `matrix` and `cell`."""
    content = Content(file, data or {})
    if matrix:
        content = content.without("cells", "matrix")
    for table, values in (("matrix", matrix), ("cell", cell), ("env", env)):
        for name, value in (values or {}).items():
            place = "--env" if table == "env" else f"--{name.replace('_', '-')}"
            content = content.set(f"{table}.{name}", value, place)
    for name, value in flags.items():
        key = name if name in ("variant", "launches", "app", "slo", "quick") else f"load.{name}"
        content = content.set(key, value, f"--{name.replace('_', '-')}")
    return read_suite(content, around)
