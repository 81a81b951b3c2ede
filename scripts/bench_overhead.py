"""Time not spent measuring, from the records of a run: `overhead [RUN]`.

Without RUN it measures the full micro matrix of one variant first. Goal: at most 1.25 x the sum of
the windows plus one cluster start. The split says where the rest goes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from serve_bench.core.result import Result, cell_slug
from serve_bench.store import read

GOAL = 1.25
LAUNCH_PHASES = ("import", "ray_init", "serve_start", "proof")


def main() -> None:
    """Prints the split per cell and in all, and whether the goal is met."""
    if len(sys.argv) > 1:
        show(read(Path(sys.argv[1])), None)
        return
    with tempfile.TemporaryDirectory() as place:
        began = time.monotonic()
        command = [sys.executable, "-m", "serve_bench", "micro", "--out", f"{place}/run"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        show(read(Path(place) / "run"), time.monotonic() - began)


def show(result: Result, wall_s: float | None) -> None:
    """Prints the table. `wall_s`: of the whole command, where it was measured."""
    cells: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for deploy in result.deploys:
        cells[cell_slug(deploy.cell)]["deploy"] += deploy.seconds
    for trial in result.trials:
        cell = cells[cell_slug(trial.cell)]
        cell["windows"] += trial.seconds["measured"]
        cell["warm-up"] += trial.seconds["warmup"]
        cell["connect"] += trial.seconds["connect"]
        cell["workers"] += trial.seconds["total"] - sum(
            trial.seconds[name] for name in ("measured", "warmup", "connect")
        )
    launch_s = sum(sum(launch.seconds.values()) for launch in result.launches)
    teardown_s = sum(teardown.seconds for teardown in result.teardowns)
    names = ("windows", "deploy", "warm-up", "connect", "workers")
    print(f"{'cell':28}" + "".join(f"{name:>10}" for name in names) + "   seconds")
    for slug, cell in cells.items():
        print(f"{slug:28}" + "".join(f"{cell[name]:10.2f}" for name in names))
    total = {name: sum(cell[name] for cell in cells.values()) for name in names}
    print(f"{'all cells':28}" + "".join(f"{total[name]:10.2f}" for name in names))
    split = ", ".join(
        f"{name} {sum(launch.seconds.get(name, 0.0) for launch in result.launches):.2f}"
        for name in LAUNCH_PHASES
    )
    print(f"launch {launch_s:.2f} s ({split}); teardown {teardown_s:.2f} s")
    accounted = sum(total.values()) + launch_s + teardown_s
    whole = accounted if wall_s is None else wall_s
    if wall_s is not None:
        print(f"whole command {wall_s:.2f} s, of it not in the records {wall_s - accounted:.2f} s")
    first_deploy_s = result.deploys[0].seconds if result.deploys else 0.0
    start_s = launch_s / max(1, len(result.launches)) + first_deploy_s
    allowed = GOAL * total["windows"] + start_s
    share = (whole - start_s) / total["windows"]
    print(f"(whole - one cluster start of {start_s:.2f} s) / windows = {share:.3f}")
    print(f"goal: at most {GOAL}: {'met' if whole <= allowed else 'MISSED'}")
    unsteady = [trial.key for trial in result.trials if not trial.warmup.steady]
    shortest = min((trial.warmup.seconds for trial in result.trials), default=0.0)
    print(f"warm-ups: shortest {shortest:.2f} s; not steady at their end: {len(unsteady)}")
    for key in unsteady:
        print(f"    {key}")


if __name__ == "__main__":
    main()
