"""The size of the house, by room, against its budgets; exit code 1 where one is exceeded, or where
two classes share a name.

A module with exactly one importer is a question: would it be a part of it? Benchmarks and commands
are left out there, since a registry imports each of them once. Lines are those of the files, with
docstrings and blank ones.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGE: Final = ROOT / "serve_bench"


@dataclass(frozen=True)
class Budget:
    """What a figure may be at most, and what it is to become."""

    name: str
    most: int
    goal: int


#: `most` is what the rooms hold once each thing is said once; a commit that raises one says why.
BUDGETS: Final = (
    Budget("lines of serve_bench", 82_370, 36_000),
    Budget("files of serve_bench", 328, 130),
    Budget("lines of report, summaries and documents", 22_290, 10_500),
    Budget("lines of cli and commands", 9_560, 2_800),
    Budget("lines of runner and benches", 4_690, 1_900),
    Budget("lines of load", 6_040, 4_000),
    Budget("files of load", 21, 14),
    Budget("lines of tests", 51_300, 23_000),
    Budget("modules with one importer", 27, 12),
)
#: Modules of a kind of run that measure, and those that say what is asked for; the others say what
#: its records mean.
MEASURING: Final = frozenset(
    """backend bench cluster duet environments facts foresight measure needs nodes runner slicing
    trial""".split()
)
#: Of the first, those that the budget of runners counts, beside the room runner/.
BENCHES: Final = frozenset({"bench", "nodes", "runner"})
ASKING: Final = frozenset({"request", "suite", "registry"})
#: Of the command line, which the budget of cli counts too.
COMMANDS: Final = frozenset({"command", "drive", "flags"})


def python_files(folder: Path) -> list[Path]:
    """The modules below a folder, in order."""
    return sorted(file for file in folder.rglob("*.py") if "__pycache__" not in file.parts)


def lines_of(files: Iterable[Path]) -> int:
    """The lines of some files together."""
    return sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)


def room_of(file: Path) -> str:
    """The folder of a module below the package; a kind of run stands for itself."""
    parts = file.relative_to(PACKAGE).parts
    if len(parts) == 1:
        return "(top)"
    return "/".join(parts[:2]) if parts[0] == "benchmarks" and len(parts) > 2 else parts[0]


def importers() -> dict[Path, set[Path]]:
    """Each module with those of the package that import it."""
    files = python_files(PACKAGE)
    names = {_name(file): file for file in files}
    by: dict[Path, set[Path]] = {file: set() for file in files}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for name in _imported(node, file):
                if (to := names.get(name)) is not None and to != file:
                    by[to].add(file)
    return by


def _name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(node: ast.AST, file: Path) -> Iterable[str]:
    """The modules that a statement may mean. A program that is started by path names its own
    modules plainly."""
    if isinstance(node, ast.Import):
        names = [one.name for one in node.names]
        return [*names, *(f"{_name(file.parent)}.{name}" for name in names)]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        above = file.parents[node.level - 1]
        base = ".".join(filter(None, [_name(above), base]))
    names = [base, *(f"{base}.{one.name}" for one in node.names)]
    return [*names, f"{_name(file.parent)}.{base}"]


def single_importers() -> list[Path]:
    """Modules with exactly one importer, outside of benchmarks and commands."""
    return [
        file
        for file, by in importers().items()
        if len(by) == 1
        and file.stem not in ("__init__", "__main__")
        and file.relative_to(PACKAGE).parts[0] not in ("benchmarks", "cli")
    ]


def doubled_names() -> dict[str, list[str]]:
    """Names that more than one class of the package has, each with its modules."""
    modules: dict[str, list[str]] = defaultdict(list)
    for file in python_files(PACKAGE):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(str(file.relative_to(PACKAGE)))
    return {name: places for name, places in sorted(modules.items()) if len(places) > 1}


def figures() -> dict[str, int]:
    """What the budgets are about, by their names."""
    files = python_files(PACKAGE)
    kinds = [file for file in files if file.relative_to(PACKAGE).parts[0] == "benchmarks"]
    telling = [file for file in kinds if file.stem not in MEASURING | ASKING | COMMANDS]
    report, load, runner, cli = (
        python_files(PACKAGE / room) for room in ("report", "load", "runner", "cli")
    )
    cli += [file for file in kinds if file.stem in COMMANDS]
    measured = [*runner, *(file for file in kinds if file.stem in BENCHES)]
    values = (
        *(lines_of(files), len(files), lines_of([*report, *telling]), lines_of(cli)),
        *(lines_of(measured), lines_of(load), len(load)),
        *(lines_of(python_files(ROOT / "tests")), len(single_importers())),
    )
    return {budget.name: value for budget, value in zip(BUDGETS, values, strict=True)}


def main() -> int:
    """Prints rooms, questions and budgets. Returns the exit code."""
    rooms: dict[str, list[Path]] = defaultdict(list)
    for file in python_files(PACKAGE):
        rooms[room_of(file)].append(file)
    for room, files in sorted(rooms.items()):
        print(f"{room:28} {lines_of(files):7,} lines in {len(files):3} files")
    alone = [str(file.relative_to(PACKAGE)) for file in single_importers()]
    print(f"one importer: {', '.join(alone)}")
    values = figures()
    print(f"{'':58} {'now':>7} {'most':>7} {'goal':>7}")
    for one in BUDGETS:
        mark = "  EXCEEDED" if values[one.name] > one.most else ""
        print(f"{one.name:58} {values[one.name]:7,} {one.most:7,} {one.goal:7,}{mark}")
    doubled = doubled_names()
    for name, places in doubled.items():
        print(f"class {name} stands in {', '.join(places)}")
    return int(bool(doubled) or any(values[one.name] > one.most for one in BUDGETS))


if __name__ == "__main__":
    sys.exit(main())
