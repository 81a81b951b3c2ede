"""Flamegraphs of a run's profiled trials: an SVG beside each file of raw stacks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from serve_bench.core.result import Trial


def draw_profiles(folder: Path, trials: Iterable[Trial]) -> list[Path]:
    """Draws those that are not drawn yet. Raises RunFailed when a file cannot be written.

    The title says variant, cell and row; stacks that a later hand removed are passed over.
    """
    from serve_bench.cli.record import write
    from serve_bench.report.flamegraph import flame_svg
    from serve_bench.report.stack_tables import reading_of
    from serve_bench.runner.recording import RAW_SUFFIX, layer_rules, read_stacks

    rules = layer_rules()
    drawn = []
    for trial in trials:
        for one in trial.profiles:
            raw = folder / str(one.get("path", ""))
            if not {"role", "pid"} <= set(one) or not _is_of(folder, raw):
                continue
            place = raw.with_name(raw.name.removesuffix(RAW_SUFFIX) + ".svg")
            if place.exists():
                continue
            name = f"{trial.key}, {one['role']} {one['pid']}"
            stacks = read_stacks(raw)
            reading = reading_of(name, stacks, rules)
            write(place, flame_svg(reading.counted or stacks, reading.about))
            drawn.append(place)
    return drawn


def _is_of(folder: Path, file: Path) -> bool:
    """Whether a file is there, in this folder: a record may name files of the run alone."""
    try:
        return file.resolve().is_relative_to(folder.resolve()) and file.is_file()
    except (OSError, RuntimeError, ValueError):  # a name that no file can have, links in a ring
        return False
