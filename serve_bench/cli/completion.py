"""What a shell offers behind an option or an argument: the closed set of words of its declaration,
or what its name stands for in every command. Nothing is looked up before a shell asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from serve_bench.cli import find

VARIANTS: Final = ("variant", "a", "b")
RUNS: Final = ("resume", "noise", "folders", "run_a", "run_b", "dirs", "run")


def _known(name: str) -> Iterable[str]:
    if name in VARIANTS:
        variants: Iterable[str] = find("core.variants:BUILT_IN_VARIANTS")
        return variants
    files = find("store.files:shipped")("scenarios").glob("*.toml") if name == "suite" else ()
    runs = find("store:RESULTS").glob(f"*/{find('store:RECORDS_FILE')}") if name in RUNS else ()
    return sorted([*(file.stem for file in files), *(str(file.parent) for file in runs)])


def completion_of(name: str, words: Sequence[str]) -> Callable[[str], list[str]] | None:
    """How the values of a parameter are completed, behind the last comma; None: as files are."""
    if not words and name not in (*VARIANTS, *RUNS, "suite"):
        return None

    def complete(incomplete: str) -> list[str]:
        begun, comma, last = incomplete.rpartition(",")
        return [f"{begun}{comma}{word}" for word in words or _known(name) if word.startswith(last)]

    return complete
