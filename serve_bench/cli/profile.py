"""`serve-bench profile`: py-spy on Serve processes, and the difference of two profiles."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from serve_bench.processes import ServeProcess
    from serve_bench.recipes import Recipe
    from serve_bench.recording import Profile, Wish
    from serve_bench.stacks import LayerRules

DURATION_S, RATE = 30.0, 100

profile = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


@profile.callback()
def record(
    context: typer.Context,
    pid: Annotated[int | None, typer.Option(help="A process, by its pid.")] = None,
    target: Annotated[
        str | None,
        typer.Option(help="proxy, replica, controller, haproxy or all, on this machine."),
    ] = None,
    app: Annotated[str | None, typer.Option(help="Only replicas of this application.")] = None,
    deployment: Annotated[
        str | None, typer.Option(help="Only replicas of this deployment.")
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="A recipe of profiles/; other flags win over it.")
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Show the Serve processes of this machine.")
    ] = False,
    dump: Annotated[bool, typer.Option("--dump", help="Print the stacks now.")] = False,
    duration: Annotated[float | None, typer.Option(help="Seconds to record [30].")] = None,
    rate: Annotated[int | None, typer.Option(help="Samples a second [100].")] = None,
    native: Annotated[bool, typer.Option("--native", help="Frames of C and C++ too.")] = False,
    gil: Annotated[bool, typer.Option("--gil", help="Only threads that hold the GIL.")] = False,
    idle: Annotated[bool, typer.Option("--idle", help="Threads that wait, too.")] = False,
    threads: Annotated[bool, typer.Option("--threads", help="Each thread by itself.")] = False,
    subprocesses: Annotated[
        bool, typer.Option("--subprocesses", help="Its child processes too.")
    ] = False,
    nonblocking: Annotated[
        bool, typer.Option("--nonblocking", help="Do not stop it to sample: cheaper, less exact.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file [by role, pid].")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="flamegraph, speedscope, chrometrace or raw."),
    ] = None,
) -> int | None:
    """Record flamegraphs of proxy, replicas or any Python process with py-spy.

    A flamegraph (-o x.svg, or x.html with its tables) comes with the raw stacks beside it.

    Example: serve-bench profile --target replica --duration 10 -o replica.svg
    """
    if context.invoked_subcommand is not None:
        return None
    from serve_bench.errors import BadInput
    from serve_bench.recipes import FLAGS

    if list_:
        return _list()
    if recipe is not None and pid is None and target is None:
        target = _recipe(recipe).target
    if (pid is None) == (target is None):
        raise BadInput(
            "name what to profile: --pid PID, --target ROLE or --recipe NAME (or --list)"
        )
    given = dict(zip(FLAGS, (native, gil, idle, threads, subprocesses, nonblocking), strict=True))
    wish = _wish(recipe, duration, rate, given, out, format)
    processes = _processes(pid, target, app, deployment)
    if dump:
        return _dump(processes, native)
    if target == "haproxy":
        return _haproxy(processes, wish)
    return _record(processes, wish)


@profile.command()
def diff(
    a: Annotated[str, typer.Argument(help="Raw stacks, a folder of them, or with --run a cell.")],
    b: Annotated[str, typer.Argument(help="The other.")],
    run: Annotated[Path | None, typer.Option(help="Folder of the run that A and B are of.")] = None,
    target: Annotated[
        str, typer.Option(help="Of folders, the profiles of this: proxy, replica, controller.")
    ] = "replica",
    idle: Annotated[bool, typer.Option("--idle", help="Count idle stacks too.")] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Draw the difference into this HTML file.")
    ] = None,
) -> int:
    """Set two profiles against each other: what grew, what shrank, in shares of their samples.

    Example: serve-bench profile diff --run results/x default optimized -o diff.html
    """
    from serve_bench.processes import TARGETS
    from serve_bench.recipes import one_of
    from serve_bench.recording import find_stacks, layer_rules
    from serve_bench.report.flamegraph import diff_html
    from serve_bench.report.stack_tables import difference_of, difference_text, reading_of

    roles = TARGETS[one_of(target, ("proxy", "replica", "controller"), "--target")]
    rules = layer_rules()
    readings = []
    for word in (a, b):
        stacks, files = find_stacks(word, run, roles)
        name = word if len(files) == 1 else f"{word} ({len(files)} processes)"
        readings.append(reading_of(name, stacks, rules, keep_idle=idle))
    difference = difference_of(readings[0], readings[1], rules)
    typer.echo(difference_text(difference), nl=False)
    if out is not None:
        _write(out, diff_html(difference))
        typer.echo(f"wrote {out}")
    return 0


# -------------------------------------------------------------------------------- choosing


def _recipe(name: str) -> Recipe:
    from serve_bench.errors import BadInput
    from serve_bench.recipes import read_recipe
    from serve_bench.shipped import read_toml, shipped

    folder = shipped("profiles")
    file = Path(name) if name.endswith(".toml") or "/" in name else folder / f"{name}.toml"
    if not file.exists():
        names = ", ".join(sorted(one.stem for one in folder.glob("*.toml")))
        raise BadInput(f"--recipe: no {name!r}; a path, or one of: {names}")
    return read_recipe(read_toml(file), file.name)


def _wish(
    recipe: str | None,
    duration: float | None,
    rate: int | None,
    given: dict[str, bool],
    out: Path | None,
    format: str | None,
) -> Wish:
    """What to record: flags, then the recipe, then the defaults."""
    from serve_bench import recipes
    from serve_bench.profiler import Options
    from serve_bench.recording import Wish

    found = None if recipe is None else _recipe(recipe)
    seconds = (
        recipes.duration(duration, "--duration")
        if duration is not None
        else (found.duration_s if found else None) or DURATION_S
    )
    samples = (
        recipes.sample_rate(rate, "--rate")
        if rate is not None
        else (found.rate if found else None) or RATE
    )
    chosen = format or (found.format if found else None) or _format_of(out)
    flags = {name: on or (found is not None and name in found.flags) for name, on in given.items()}
    return Wish(
        seconds,
        Options(samples, **flags),
        recipes.one_of(chosen, recipes.FORMATS, "--format"),
        out,
    )


def _format_of(out: Path | None) -> str:
    """What the name of the file asks for."""
    if out is not None:
        for ending, format in ((".speedscope.json", "speedscope"), (".json", "chrometrace")):
            if out.name.endswith(ending):
                return format
        if out.suffix in (".txt", ".raw"):
            return "raw"
    return "flamegraph"


def _processes(
    pid: int | None, target: str | None, app: str | None, deployment: str | None
) -> list[ServeProcess]:
    """The processes that are meant. BadInput when there is none, or one that cannot be."""
    from serve_bench.errors import BadInput
    from serve_bench.processes import TARGETS, ServeProcess, chosen, serve_processes
    from serve_bench.recipes import one_of
    from serve_bench.rights import check_process

    if pid is not None:
        check_process(pid)
        known = {one.pid: one for one in serve_processes()}
        return [known.get(pid) or ServeProcess(pid, "process", "", "")]
    assert target is not None
    one_of(target, tuple(TARGETS), "--target")
    found = chosen(serve_processes(), target, app, deployment)
    if not found:
        narrowed = "".join(
            f" of {name} {value}"
            for name, value in (("app", app), ("deployment", deployment))
            if value is not None
        )
        raise BadInput(
            f"--target {target}: no such Serve process{narrowed} on this machine (--list)"
        )
    if target != "haproxy":
        for one in found:
            check_process(one.pid)
    return found


# --------------------------------------------------------------------------------- doing


def _record(processes: Sequence[ServeProcess], wish: Wish) -> int:
    from serve_bench.errors import RunFailed
    from serve_bench.recording import by_role, layer_rules, record_all
    from serve_bench.report.stack_tables import profile_text, reading_of
    from serve_bench.stacks import merged

    with _Progress(len(processes), wish.duration_s) as progress:
        profiles = record_all(processes, wish, progress.at)
    for failure in profiles.failed if profiles.done else ():
        print(f"serve-bench: {failure}", file=sys.stderr)
    if not profiles.done:
        if profiles.interrupted:
            return 130
        first = profiles.failed[0]
        raise RunFailed(str(first), tuple(str(other) for other in profiles.failed[1:]))
    rules = layer_rules()
    for one in profiles.done:
        _keep(one, wish, rules)
    for role, group in by_role(profiles.done).items():
        name = f"{role} {', '.join(str(one.pid) for one in group)}"
        stacks = merged(one.stacks for one in group if one.stacks is not None)
        text = profile_text(reading_of(name, stacks, rules, keep_idle=wish.options.idle), rules)
        typer.echo(text, nl=False)
    return 130 if profiles.interrupted else 0


def _keep(one: Profile, wish: Wish, rules: LayerRules) -> None:
    """Draws what is derived from the stacks, and says which files there are."""
    from serve_bench.recording import raw_beside
    from serve_bench.report.flamegraph import flame_html, flame_svg
    from serve_bench.report.stack_tables import reading_of

    for note in one.notes:
        print(f"note: {note}", file=sys.stderr)
    title = f"{one.role} {one.pid}"
    files = [one.place]
    if one.stacks is not None and wish.format == "flamegraph":
        reading = reading_of(title, one.stacks, rules, keep_idle=wish.options.idle)
        if one.place.suffix == ".html":
            _write(one.place, flame_html(reading, rules))
        else:
            _write(one.place, flame_svg(reading.counted or one.stacks, reading.about))
        files.append(raw_beside(one.place))
    typer.echo(f"wrote {' and '.join(str(file) for file in files)} ({one.samples} samples)")


def _haproxy(processes: Sequence[ServeProcess], wish: Wish) -> int:
    from serve_bench.recording import layer_rules, record_native
    from serve_bench.report.stack_tables import profile_text, reading_of

    print("note: haproxy is C, which py-spy cannot see; perf is used for it", file=sys.stderr)
    rules = layer_rules()
    for process in processes:
        cpu, profile_, said = record_native(process, wish)
        typer.echo(f"haproxy {process.pid}: CPU {cpu:.1f} % of a core")
        if profile_ is None or profile_.stacks is None:
            print(f"note: no stacks: {said}", file=sys.stderr)
            continue
        _keep(profile_, wish, rules)
        reading = reading_of(f"haproxy {process.pid}", profile_.stacks, rules, keep_idle=True)
        typer.echo(profile_text(reading, rules), nl=False)
    return 0


def _dump(processes: Sequence[ServeProcess], native: bool) -> int:
    from serve_bench.profiler import dump

    for process in processes:
        if len(processes) > 1:
            typer.echo(f"== {process.role} {process.pid}")
        typer.echo(dump(process.pid, native=native), nl=False)
    return 0


def _list() -> int:
    import time

    from serve_bench.processes import serve_processes
    from serve_bench.sampler import cpu_ns, rss_bytes

    found = serve_processes()
    if not found:
        typer.echo("no Serve process runs on this machine")
        return 0
    before, began = {one.pid: cpu_ns(one.pid) for one in found}, time.perf_counter_ns()
    time.sleep(0.5)
    rows: list[tuple[str, ...]] = [
        ("pid", "role", "app", "deployment", "CPU %", "MB", "how to profile it")
    ]
    cluster = ""
    for one in found:
        then, now, rss = before[one.pid], cpu_ns(one.pid), rss_bytes(one.pid)
        if then is None or now is None or rss is None:
            continue  # ended meanwhile
        share = 100.0 * (now - then) / (time.perf_counter_ns() - began)
        if one.cluster != cluster:
            cluster = one.cluster
            rows.append((f"cluster {cluster}",))
        rows.append(
            (str(one.pid), one.role, one.app or "", one.deployment or "", f"{share:.0f}",
             f"{rss / 1e6:.0f}", _how(one))
        )  # fmt: skip
    _print_columns(rows)
    return 0


def _how(one: ServeProcess) -> str:
    return "--target haproxy (C: perf)" if one.role == "haproxy" else f"--pid {one.pid}"


def _print_columns(rows: Sequence[tuple[str, ...]]) -> None:
    whole = [row for row in rows if len(row) > 1]
    widths = [max(len(row[at]) for row in whole) for at in range(len(whole[0]))]
    for row in rows:
        cells = [text.ljust(wide) for text, wide in zip(row, widths, strict=False)]
        typer.echo("  ".join(cells).rstrip() if len(row) > 1 else row[0])


class _Progress:
    """How far a recording is, on a terminal; a single line elsewhere."""

    def __init__(self, count: int, duration_s: float) -> None:
        what = f"{count} process{'es' if count != 1 else ''}"
        self._text = f"recording {what} for {duration_s:g} s"
        self._duration_s = duration_s
        self._live = sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        print(self._text, end="" if self._live else "\n", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def at(self, seconds: float) -> None:
        """So many seconds have been recorded."""
        if self._live:
            print(f"\r{self._text}: {seconds:.0f} s", end="", file=sys.stderr, flush=True)


def _write(path: Path, text: str) -> None:
    from serve_bench.errors import RunFailed

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        why = (error.strerror or "error").lower()
        raise RunFailed(f"{path}: cannot be written: {why}") from None
