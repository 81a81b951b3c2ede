"""Variables, parameters, functions and classes are called what they are (docs/style.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.places import TOP

VAGUE: Final = frozenset("one each own some every told".split())

#: Rooms whose names are not mended yet.
LEFT: Final = tuple(
    """serve_bench/analysis/climb serve_bench/analysis/comparing/ serve_bench/analysis/ratios
    serve_bench/analysis/verdict/ serve_bench/benchmarks/tax/ serve_bench/core/ serve_bench/load/
    serve_bench/runner/ serve_bench/serving/ serve_bench/spec/ tests/analysis/test_compar
    tests/analysis/test_verdict tests/cli/ tests/core/ tests/runner/ tests/serving/
    tests/store/""".split()
)


def bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Each name that is given to something in a file, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def vague_names(file: Path) -> list[str]:
    names = bound(ast.parse(file.read_text(encoding="utf-8")))
    return [f"{file.relative_to(TOP)}:{line}: {name}" for name, line in names if name in VAGUE]


def test_no_name_says_nothing_of_what_it_names() -> None:
    files = [
        file for room in ("serve_bench", "scripts", "tests") for file in TOP.glob(f"{room}/**/*.py")
    ]
    found = [line for file in files for line in vague_names(file)]
    assert [line for line in found if not line.startswith(LEFT)] == []
