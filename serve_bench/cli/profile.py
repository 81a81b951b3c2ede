"""`serve-bench profile`: py-spy on Serve processes, and what differs between two profiles."""

from __future__ import annotations

from pathlib import Path

import typer

from serve_bench.cli.machine import DiffOptions, ProfileOptions
from serve_bench.cli.profile_run import list_processes, print_stacks, record_processes
from serve_bench.core.errors import BadInput
from serve_bench.observing.processes import TARGETS, ServeProcess, chosen, serve_processes
from serve_bench.observing.profiler import SpyOptions, check_process, py_spy
from serve_bench.report.profile_text import difference_text
from serve_bench.runner.recording import Wish, find_stacks
from serve_bench.spec.content import Content
from serve_bench.spec.profile import ProfileSpec, read_profile
from serve_bench.store.files import read_toml, shipped


def _read(options: ProfileOptions) -> ProfileSpec:
    """What to record: flags, then the recipe, then the defaults."""
    name, content = options.recipe, Content("profile")
    if name is not None:
        folder = shipped("profiles")
        file = Path(name) if name.endswith(".toml") or "/" in name else folder / f"{name}.toml"
        if not file.exists():
            names = ", ".join(sorted(recipe.stem for recipe in folder.glob("*.toml")))
            raise BadInput(f"--recipe: no {name!r}; a path, or one of: {names}")
        content = Content(file.name, read_toml(file))
    return read_profile(ProfileSpec.add_flags(content, options.given))


def _processes(
    pid: int | None, target: str | None, app: str | None, deployment: str | None
) -> list[ServeProcess]:
    """The chosen processes. Raises BadInput where there is none, or one cannot be recorded."""
    if pid is not None:
        check_process(pid)
        py_spy()
        known = {process.pid: process for process in serve_processes()}
        return [known.get(pid) or ServeProcess(pid, "process", "", "")]
    assert target is not None
    processes = chosen(serve_processes(), target, app, deployment)
    if not processes:
        limits = "".join(
            f" of {name} {value}"
            for name, value in (("app", app), ("deployment", deployment))
            if value is not None
        )
        raise BadInput(f"--target {target}: no such Serve process{limits} on this machine (--list)")
    py_spy()
    for process in processes:
        check_process(process.pid)
    return processes


def record(options: ProfileOptions) -> int | None:
    """Records the processes that are asked for. Returns the exit code."""
    pid, out = options.pid, options.out
    if options.list_:
        if given := options.changed(lambda option: option.name != "list_"):
            raise BadInput(f"{given[0]}: does not go with --list, which shows every Serve process")
        return list_processes()
    spec = _read(options)
    target = spec.target if pid is None or "target" in options.given else None
    if (pid is None) == (target is None):
        raise BadInput(
            "name what to profile: --pid PID, --target ROLE or --recipe NAME (or --list)"
        )
    if out is not None and (out.is_dir() or not out.name):
        raise BadInput(f"-o: {out} is a folder; it takes a file")
    if out is not None and out.suffix != ".svg":
        raise BadInput(f"-o: {out} is not allowed; it takes a file that ends in .svg")
    processes = _processes(pid, target, options.app, options.deployment)
    if options.dump:
        return print_stacks(processes, spec.native)
    spy = SpyOptions(spec.rate, spec.native, spec.gil, spec.idle)
    return record_processes(processes, Wish(spec.duration, spy, out))


def diff(options: DiffOptions) -> int:
    """Compares two profiles. Returns the exit code."""
    roles = TARGETS[options.target]
    profiles = []
    for word in (options.a, options.b):
        stacks, files = find_stacks(word, options.run, roles)
        name = word if len(files) == 1 else f"{word} ({len(files)} processes)"
        profiles.append((name, stacks))
    typer.echo(difference_text(profiles[0], profiles[1], options.idle), nl=False)
    return 0
