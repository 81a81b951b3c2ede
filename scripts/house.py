"""The size of the house, room by room, compared with its budgets; exit code 1 above one of them.

A room is where a file will stand when the tree of the design is reached, so a folder of today may
belong to several rooms. Lines are those of the files, with docstrings and blank ones; documents are
counted in words. `most` is what was left at the last step: it goes down with each step, never up.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent


@dataclass(frozen=True)
class Room:
    """Files of the project, by patterns of their paths below its root, and their budgets."""

    name: str
    patterns: str  # a file belongs to the first room that matches
    most: int  # of this step
    must: int  # as `goal`: of the whole change
    goal: int


ROOMS: Final = (
    Room("load", "load/* nodes/* core/nodes.py", 6_457, 5_400, 5_000),
    Room("serving", "serving/*", 8_266, 6_800, 6_200),
    Room("observing", "observing/*", 1_932, 1_600, 1_450),
    Room("analysis", "analysis/*", 9_268, 8_000, 7_300),
    Room("doctor, pytest_plugin, package", "doctor/* pytest_plugin/* __*.py", 1_396, 1_100, 950),
    Room(
        "records",
        """store/* core/errors.py core/facts.py core/failed_requests.py core/figures.py
        core/histogram.py core/load_result.py core/marks.py core/numbers.py core/proof.py
        core/record_lines.py core/redaction.py core/result.py core/row_places.py core/schema.py
        core/traffic.py core/usage.py""",
        3_483,
        1_600,
        1_400,
    ),
    Room(
        "runner",
        """runner/* benchmarks/*/backend.py benchmarks/*/bench.py benchmarks/*/cluster.py
        benchmarks/*/needs.py benchmarks/*/nodes.py spec/slicing.py""",
        5_230,
        4_600,
        4_200,
    ),
    Room(
        "spec",
        """core/* spec/* benchmarks/*/spec.py benchmarks/*/command.py benchmarks/*/experiment.py
        benchmarks/*/options.py cli/command.py cli/experiment.py
        cli/options.py cli/panels.py cli/request.py cli/rows.py cli/sides.py cli/targets.py""",
        10_850,
        3_000,
        2_600,
    ),
    # What tells a run: the view with its lenses, and the files and pages made of it.
    Room("telling", "view/* report/* benchmarks/*", 7_958, 8_600, 7_200),
    Room("cli", "cli/*", 2_190, 1_600, 1_300),
)

#: Other budgets: lines of the whole package, of tests and of scripts, words of the documents.
TOTALS: Final = (
    Room("serve_bench", "serve_bench/*.py", 57_030, 42_300, 37_600),
    Room("tests", "tests/*.py", 32_673, 25_000, 22_000),
    Room("scripts", "scripts/*.py", 2_995, 3_000, 2_500),
    Room(
        "documents, words", "docs/*.md README.md GLOSSARY.md CHANGELOG.md", 17_685, 18_000, 15_000
    ),
)


def list_files() -> list[str]:
    """List the paths of the project's files, those that are not added yet too, in order."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(path for path in listed.splitlines() if (ROOT / path).is_file())


def matches(path: str, patterns: str) -> bool:
    """Return whether a path matches one of the patterns, whose `*` takes folders too."""
    return any(fnmatch(path, pattern) for pattern in patterns.split())


def count_lines(path: str) -> int:
    """Count the lines of a Python file, the words of a document."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return len(text.split() if path.endswith(".md") else text.splitlines())


def measure_rooms(files: Sequence[str]) -> Counter[str]:
    """Count the lines of each room, by its name; exit on a file of the package without a room."""
    sizes: Counter[str] = Counter()
    for path in files:
        if not (path.startswith("serve_bench/") and path.endswith(".py")):
            continue
        inner = path.removeprefix("serve_bench/")
        room = next((room for room in ROOMS if matches(inner, room.patterns)), None)
        if room is None:
            sys.exit(f"house: {path} belongs to no room")
        sizes[room.name] += count_lines(path)
    return sizes


def measure_totals(files: Sequence[str]) -> Counter[str]:
    """Count the lines or words of each total, by its name."""
    sizes: Counter[str] = Counter()
    for total in TOTALS:
        sizes[total.name] = sum(
            map(count_lines, (path for path in files if matches(path, total.patterns)))
        )
    return sizes


def find_doubled_classes(files: Sequence[str]) -> dict[str, list[str]]:
    """Return the names that more than one class of the package has, each with its files."""
    places: dict[str, list[str]] = defaultdict(list)
    for path in files:
        if path.startswith("serve_bench/") and path.endswith(".py"):
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(path)
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def main() -> int:
    """Print rooms and totals beside their budgets. Returns the exit code."""
    files = list_files()
    sizes = measure_rooms(files) | measure_totals(files)
    print(f"{'':32}{'now':>8}{'most':>8}{'must':>8}{'goal':>8}")
    exceeded = False
    for room in (*ROOMS, *TOTALS):
        over = sizes[room.name] > room.most
        exceeded |= over
        figures = f"{sizes[room.name]:8,}{room.most:8,}{room.must:8,}{room.goal:8,}"
        print(f"{room.name:32}{figures}{'  EXCEEDED' if over else ''}")
    doubled = find_doubled_classes(files)
    for name, paths in doubled.items():
        print(f"class {name} stands in {', '.join(paths)}")
    return int(exceeded or bool(doubled))


if __name__ == "__main__":
    sys.exit(main())
