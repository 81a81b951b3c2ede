"""What a shell offers behind an option or an argument.

A closed set of words is that of the declaration; what stands in folders, and the variants, are
known by the names of parameters. Nothing of it is looked up before a shell asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final


def _variants() -> Iterable[str]:
    from serve_bench.core.variants import BUILT_IN_VARIANTS

    return BUILT_IN_VARIANTS


def _apps() -> Iterable[str]:
    from serve_bench.core.app_spec import APPS

    return APPS


def _files_of(folder: str) -> Callable[[], Iterable[str]]:
    def names() -> Iterable[str]:
        from serve_bench.store.files import shipped

        return sorted(file.stem for file in shipped(folder).glob("*.toml"))

    return names


def _runs() -> Iterable[str]:
    """Folders in `results`, the newest first."""
    from serve_bench.store import RECORDS_FILE, RESULTS

    files = Path(RESULTS).glob(f"*/{RECORDS_FILE}")
    return sorted((str(file.parent) for file in files), reverse=True)


_SOURCES: Final[Mapping[str, Callable[[], Iterable[str]]]] = {
    name: source
    for source, names in {
        _variants: "variant a b",
        _apps: "app",
        _files_of("scenarios"): "suite",
        _files_of("profiles"): "recipe",
        _runs: "resume noise folders run_a run_b dirs run",
    }.items()
    for name in names.split()
}


def completion_of(name: str, words: Sequence[str]) -> Callable[[str], list[str]] | None:
    """How the values of a parameter are completed, behind the last comma; None: as files are."""
    source = _SOURCES.get(name)
    if not words and source is None:
        return None

    def complete(incomplete: str) -> list[str]:
        begun, comma, last = incomplete.rpartition(",")
        known = words or (source() if source is not None else ())
        return [f"{begun}{comma}{word}" for word in known if word.startswith(last)]

    return complete
