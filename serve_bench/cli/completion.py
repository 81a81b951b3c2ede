"""What a shell offers behind an option or an argument; nothing is looked up before it asks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from serve_bench.cli import find

VARIANTS: Final = ("variant", "a", "b")
RUNS: Final = ("resume", "noise", "folders", "run_a", "run_b", "dirs", "run")
COMPLETED: Final = (*VARIANTS, *RUNS, "suite")
"""Parameters whose values have no closed set of words, but are known; files stand for others."""


def _list_known(name: str) -> Iterable[str]:
    if name in VARIANTS:
        variants: Iterable[str] = find("core.variants:BUILT_IN_VARIANTS")
        return variants
    files = find("store.files:shipped")("scenarios").glob("*.toml") if name == "suite" else ()
    runs = find("store:RESULTS").glob(f"*/{find('store:RECORDS_FILE')}") if name in RUNS else ()
    return sorted([*(file.stem for file in files), *(str(file.parent) for file in runs)])


def complete(
    name: str, words: Sequence[str], _context: object, _words: object, incomplete: str
) -> list[str]:
    """List the values of a parameter that begin with what follows the last comma."""
    begun, comma, last = incomplete.rpartition(",")
    return [f"{begun}{comma}{word}" for word in words or _list_known(name) if word.startswith(last)]
