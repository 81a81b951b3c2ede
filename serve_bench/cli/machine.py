"""The options of commands on this machine: `serve-bench profile`, `doctor` and `clean`."""

from __future__ import annotations

from typing import Literal

from serve_bench.cli.command import MISSING, FilePath, Options, argument, flag
from serve_bench.cli.panels import Command, CommandGroup
from serve_bench.spec.profile import ProfileSpec


class ProfileOptions(Options):
    """Record flamegraphs of Serve or any process with py-spy.

    Of proxy, replicas, or any Python process of this machine. The raw stacks are written next to
    the flamegraph; a line of each layer and function is printed.

    Example: serve-bench profile --target replica --duration 10 -o replica.svg
    """

    spec = ProfileSpec
    order = "pid target app deployment recipe list_ dump duration rate native gil idle out"

    pid: int | None = flag(None, "Profile the process with this pid.")
    app: str | None = flag(None, "Profile replicas of this application alone.")
    deployment: str | None = flag(None, "Profile replicas of this deployment alone.")
    recipe: str | None = flag(None, "Use a recipe of profiles/; other flags override it.")
    list_: bool = flag(False, "Show the Serve processes.", "--list")
    dump: bool = flag(False, "Print the stacks now.")
    out: FilePath | None = flag(
        None, "Flamegraph to write, .svg [named by role and pid].", "-o", "--out", metavar="FILE"
    )


class DiffOptions(Options):
    """Compare two profiles: what grew and what shrank.

    Figures are shares of the samples of each.

    Example: serve-bench profile diff --run results/x default optimized
    """

    order = "a b run target idle"

    a: str = argument(MISSING, "Raw stacks, a folder of them, or a cell with --run.", metavar="A")
    b: str = argument(MISSING, "The same, which is compared with A.", metavar="B")
    run: FilePath | None = flag(None, "Folder of the run that holds A and B.")
    target: Literal["proxy", "replica", "controller"] = flag(
        "replica", "Role whose profiles are read from folders: proxy, replica, controller."
    )
    idle: bool = flag(False, "Count idle stacks too.")


_diff = Command(DiffOptions, "cli.profile:diff")
profile = CommandGroup(ProfileOptions, "cli.profile:record", commands={"diff": _diff})


class DoctorOptions(Options):
    """Check whether this machine is fit to measure on.

    Where it is not, doctor says what to do.

    The last line is the verdict: fit, usable with warnings, or not now (a failure, or other work
    takes half of the cores). doctor starts and changes nothing. Exit code 1 for a failure, else 0.

    Example: serve-bench doctor
    """

    order = "as_json python"

    as_json: bool = flag(False, "Print every check as JSON.", "--json")
    python: str | None = flag(None, "Look at the Ray of this interpreter [its own].")


doctor = Command(DoctorOptions, "cli.doctor:doctor")


class CleanOptions(Options):
    """Remove what dead runs left: processes and temporary files.

    Running benchmarks are not touched, nor any Ray that serve-bench did not start.

    Example: serve-bench clean
    """


clean = Command(CleanOptions, "cli.clean:clean")
