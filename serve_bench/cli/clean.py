"""`serve-bench clean`: ends what earlier runs left behind."""

from __future__ import annotations

import typer

from serve_bench.cli import print_note
from serve_bench.cli.command import Options
from serve_bench.serving.strays import sweep


def clean(_options: Options) -> int:
    """Remove what dead runs left. Returns the exit code."""
    swept = sweep()
    for run_id, reaped in swept.items():
        typer.echo(f"run {run_id}: {reaped.killed} processes ended, directory removed")
        for left in reaped.leftovers:
            print_note(f"run {run_id}: could not remove {left}")
    if not swept:
        typer.echo("nothing to clean")
    return 1 if any(reaped.leftovers for reaped in swept.values()) else 0
