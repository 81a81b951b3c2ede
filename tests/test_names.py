"""Variables, parameters, functions and classes are called what they are (docs/style.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.places import TOP

VAGUE: Final = frozenset("one each own some every told".split())

#: Fields that are keys of records, or become such: what is stored keeps its name.
RECORDED: Final = {
    "serve_bench/core/facts.py": ("each", "own"),
    "serve_bench/core/load_spec.py": ("each",),
}


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
    place, names = str(file.relative_to(TOP)), bound(ast.parse(file.read_text(encoding="utf-8")))
    vague = VAGUE.difference(RECORDED.get(place, ()))
    return [f"{place}:{line}: {name}" for name, line in names if name in vague]


def test_no_name_says_nothing_of_what_it_names() -> None:
    rooms = ("serve_bench", "scripts", "tests")
    files = [file for room in rooms for file in TOP.glob(f"{room}/**/*.py")]
    assert [line for file in files for line in vague_names(file)] == []
