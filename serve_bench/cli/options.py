"""Options that several commands have, each declared once: spelling, type and help.

Rule: an option stands here when it means the same in all commands; defaults stay with the commands.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import typer

if TYPE_CHECKING:
    from serve_bench.analysis.comparing.parts import Comparing

# What is measured.
Axis: TypeAlias = Annotated[str | None, typer.Option(help="One or more, with commas.")]
Concurrency: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--max-concurrent-queries",
        "--max-ongoing-requests",
        help="One or more, with commas: requests that one replica takes at once.",
    ),
]
BatchWait: TypeAlias = Annotated[
    str | None, typer.Option(help="How long serve.batch waits to fill a batch, seconds [0].")
]
Variants: TypeAlias = Annotated[
    str | None, typer.Option(help="default, haproxy, optimized, or of the suite; with commas.")
]
Env: TypeAlias = Annotated[
    list[str] | None, typer.Option("--env", help="NAME=VALUE for every variant; repeatable.")
]
Suite: TypeAlias = Annotated[str, typer.Option(help="A suite file, or the name of a shipped one.")]
Launches: TypeAlias = Annotated[
    int | None, typer.Option(help="Fresh clusters of each variant, each the whole plan [1].")
]

# What is asked, where requests differ.
Paths: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Paths with queries, one a line, asked for in turn."),
]
HeaderSets: TypeAlias = Annotated[
    str | None,
    typer.Option("--headers", metavar="FILE", help="JSON objects, one a line: headers in turn."),
]
Draw: TypeAlias = Annotated[
    str | None, typer.Option(help="Several bodies, paths or headers: cycle or random [cycle].")
]

# Rows and their length.
Windows: TypeAlias = Annotated[int | None, typer.Option(help="Windows a row [10].")]
WindowSeconds: TypeAlias = Annotated[float | None, typer.Option(help="Seconds a window [1].")]
QuickWindows: TypeAlias = Annotated[bool, typer.Option("--quick", help="3 windows of 0.5 s a row.")]
ProfileRows: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Repeat each row with py-spy on proxy, replica, controller."),
]

# The model.
Ranker: TypeAlias = Annotated[
    str | None, typer.Option(help="Of the model: plain, tuned or both [plain].")
]
Device: TypeAlias = Annotated[
    str | None, typer.Option(help="Of the model: auto, cpu or cuda [auto].")
]
Threads: TypeAlias = Annotated[
    str | None, typer.Option(help="Of torch in each ranker, on a CPU [1].")
]
TableRows: TypeAlias = Annotated[
    str | None, typer.Option(help="Rows of each table of the model [100000].")
]
GpuFraction: TypeAlias = Annotated[
    str | None, typer.Option(help="Of a GPU for each ranker replica [1].")
]

# A load that grows.
Users: TypeAlias = Annotated[
    str | None, typer.Option(help="auto, published, or numbers with commas [auto].")
]
StepSeconds: TypeAlias = Annotated[float | None, typer.Option(help="Seconds of each step [20].")]
Urls: TypeAlias = Annotated[
    list[str] | None, typer.Option(help="NAME=URL of a service that is there already; repeatable.")
]
Headers: TypeAlias = Annotated[
    list[str] | None, typer.Option("-H", "--header", help="For --url: 'Name: value'.")
]
QuickSteps: TypeAlias = Annotated[
    bool, typer.Option("--quick", help="Steps of 3 s, no refinement around the best.")
]
ServeMetrics: TypeAlias = Annotated[
    bool, typer.Option("--serve-metrics", help="Serve's own metrics too; about 1 s a row more.")
]

# The run and its report.
Out: TypeAlias = Annotated[Path | None, typer.Option(help="Folder of the run [results/<time>].")]
ResumeFrom: TypeAlias = Annotated[
    Path | None, typer.Option(help="Go on with the run in this folder, by its own plan.")
]
LoadOn: TypeAlias = Annotated[
    str | None,
    typer.Option(help="ray: load from nodes of that cluster; or HOST:PORT of another one."),
]
LoadNodes: TypeAlias = Annotated[
    int | None, typer.Option(help="With --load-on: from so many nodes [all].")
]
NoSample: TypeAlias = Annotated[
    bool, typer.Option("--no-sample", help="Do not sample CPU and memory beside the load.")
]
DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan and its expected time.")
]
Format: TypeAlias = Annotated[
    str, typer.Option("--format", "-f", help="table, classic, markdown, csv or json.")
]
Published: TypeAlias = Annotated[
    bool, typer.Option("--published", help="Set the published figures beside.")
]
PerfMetrics: TypeAlias = Annotated[
    Path | None, typer.Option(help="Write the perf_metrics JSON of Ray's release tooling here.")
]


# --------------------------------------------------------------------------------------------------
# The gate: flags that versus and compare share, and what becomes of them.
#
# Rule: BadInput in one line that names the flag; whatever is wrong with a flag or the run that it
# names is found before anything is measured. What breaks a gate is decided in comparing.

GATE_BROKEN: Final = 3
"""Exit code."""

LARGEST_THRESHOLD: Final = 0.9

Threshold: TypeAlias = Annotated[
    str | None, typer.Option(help="A change up to here is the same: 5% or 0.05 [5%].")
]
GateMetrics: TypeAlias = Annotated[
    str | None,
    typer.Option("--gate", help="Beside throughput: p50, p99, cpu [versus: cpu]."),
]
FailOn: TypeAlias = Annotated[
    str | None, typer.Option(help="Exit code 3 on: regressed, or inconclusive (which is both).")
]
Noise: TypeAlias = Annotated[
    Path | None, typer.Option(help="Folder of an A/A run (versus --aa): its noise is the floor.")
]


@dataclass(frozen=True)
class Gate:
    """What a verdict is held against. `threshold` None: not given; `metrics` begin with throughput
    and are None where none were given; `noise`: the A/A run, read."""

    threshold: float | None = None
    metrics: tuple[str, ...] | None = None
    fail_on: str | None = None
    noise: Comparing | None = None

    def check_rounds(self, rounds: int, what: str) -> None:
        """BadInput for a gate that could never break: too few launches for any verdict. `what`: as
        `--rounds 2`."""
        from serve_bench.analysis.comparison import FEWEST
        from serve_bench.core.errors import BadInput

        if self.fail_on == "regressed" and rounds < FEWEST:
            raise BadInput(
                f"--fail-on: {what}: no verdict is possible below {FEWEST} launches a side, so "
                "this gate could never break"
            )

    def close(self, comparing: Comparing) -> int:
        """Says on stderr what broke the gate. Returns the exit code: 0, or GATE_BROKEN."""
        from serve_bench.analysis.comparing import broken
        from serve_bench.core.errors import visible

        if self.fail_on is None:
            return 0
        lines = broken(comparing, self.fail_on)
        for line in lines:
            print(visible(f"gate: {line}"), file=sys.stderr)
        return GATE_BROKEN if lines else 0


def read_flags(
    threshold: str | None, gate: str | None, fail_on: str | None, noise: Path | None
) -> Gate:
    """All four flags. BadInput on the first that is wrong, and where scipy cannot be imported."""
    from serve_bench.analysis.comparison import quantile

    quantile(2.0, 0.975)
    return Gate(
        None if threshold is None else read_threshold(threshold),
        None if gate is None else read_gate(gate),
        None if fail_on is None else read_fail_on(fail_on),
        None if noise is None else read_noise(noise),
    )


def read_threshold(text: str) -> float:
    """`5%` or `0.05` as a share of 1."""
    from serve_bench.core.errors import BadInput

    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= LARGEST_THRESHOLD:
        most = 100 * LARGEST_THRESHOLD
        raise BadInput(
            f"--threshold: {text!r} is not allowed; it takes a share such as 5% or 0.05, above 0 "
            f"and up to {most:g}%"
        )
    return share


def read_gate(text: str) -> tuple[str, ...]:
    """`p99,cpu` as metrics; throughput is always the first."""
    from serve_bench.analysis.comparing.values import NAMES
    from serve_bench.core.errors import BadInput

    asked = [part.strip() for part in text.split(",")]
    for name in asked:
        if name not in NAMES:
            raise BadInput(f"--gate: {name!r} is not allowed; it takes {', '.join(NAMES)}")
    return tuple(name for name in NAMES if name in asked or name == NAMES[0])


def read_fail_on(text: str) -> str:
    """`regressed` or `inconclusive`."""
    from serve_bench.analysis.comparing import FAIL_ON
    from serve_bench.core.errors import BadInput

    if text not in FAIL_ON:
        raise BadInput(f"--fail-on: {text!r} is not allowed; it takes {' or '.join(FAIL_ON)}")
    return text


def read_noise(folder: Path) -> Comparing:
    """The A/A run in a folder. BadInput for another one, and for one with too few rounds."""
    from serve_bench.analysis.comparing import VERSUS, floors_of, of_versus
    from serve_bench.core.errors import BadInput
    from serve_bench.store import read

    try:
        result = read(folder)
        if result.run.command != VERSUS:
            raise BadInput(f"{folder}: is a run of {result.run.command}, not of versus --aa")
        comparing = of_versus(result)
        floors_of(comparing)
    except BadInput as error:
        raise BadInput(f"--noise: {str(error).removeprefix('--noise: ')}") from None
    return comparing
