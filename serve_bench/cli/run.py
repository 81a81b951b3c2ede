"""`serve-bench run`: the matrix over a Serve app of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from serve_bench.cli import options

if TYPE_CHECKING:
    from serve_bench.core.suite import Overrides

QUICK_WINDOWS, QUICK_WINDOW_S = 3, 0.5

#: Flags that go with --resume: they change what is looked at and shown, not what is measured.
LATER_TOO = (
    *("resume", "format", "perf_metrics", "dry_run"),
    *("profile", "no_sample", "serve_metrics"),
)

#: Flags of text that may not be empty.
TEXTS = ("app_name", "route", "method", "expect_status", "clients", "variant")

#: Flags that say something of an app of one's own alone.
OF_OWN_APPS = (
    *("option", "app_name", "route", "paths", "method", "header", "headers", "draw", "body"),
    "expect_status",
)


def run(
    target: Annotated[
        str | None,
        typer.Argument(
            help="module:app, path/file.py:app, a suite (.toml) or a config file of Serve (.yaml)."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Deployment.option=values, with commas; repeatable: all combinations."),
    ] = None,
    app_name: Annotated[
        str | None,
        typer.Option(help="Name of the app within Serve [default]; of a config file, which one."),
    ] = None,
    route: Annotated[str | None, typer.Option(help="Path that the load asks for [/].")] = None,
    paths: options.Paths = None,
    method: Annotated[str | None, typer.Option(help="HTTP method [GET; POST with a body].")] = None,
    header: Annotated[
        list[str] | None, typer.Option("-H", "--header", help="'Name: value'; repeatable.")
    ] = None,
    headers: options.HeaderSets = None,
    draw: options.Draw = None,
    body: Annotated[str | None, typer.Option(help="Request body: text, or @FILE.")] = None,
    expect_status: Annotated[
        str | None, typer.Option(help="Status codes that are no failure, with commas [any 2xx].")
    ] = None,
    request_timeout_s: Annotated[
        float | None, typer.Option(help="Serve gives a request up after so long [never].")
    ] = None,
    clients: Annotated[
        str | None, typer.Option(help="Rows: N aiohttp clients, raw:N connections [raw:100].")
    ] = None,
    windows: options.Windows = None,
    window_seconds: options.WindowSeconds = None,
    launches: options.Launches = None,
    quick: options.QuickWindows = False,
    variant: options.Variants = None,
    env: options.Env = None,
    out: options.Out = None,
    resume: options.ResumeFrom = None,
    profile: options.ProfileRows = None,
    no_sample: options.NoSample = False,
    load_on: options.LoadOn = None,
    load_nodes: options.LoadNodes = None,
    serve_metrics: options.ServeMetrics = False,
    dry_run: options.DryRun = False,
    format: options.Format = "table",
    perf_metrics: options.PerfMetrics = None,
) -> int:
    """Measure a Serve app of your own over its options; one row a cell, and what limited it.

    Example: serve-bench run shop.py:app --route /best --option Ranker.num_replicas=1,2
    """
    given = dict(locals())
    from serve_bench.cli import measure
    from serve_bench.cli.flags import check_texts
    from serve_bench.cli.own_flags import OwnFlags, own_suite
    from serve_bench.cli.show import Shown
    from serve_bench.core.errors import BadInput

    shown = Shown(format, perf_metrics=perf_metrics)
    shown.check()
    check_texts({name: given[name] for name in TEXTS})

    def anew() -> measure.Sitting:
        if target is None:
            raise BadInput("TARGET: name an app (module:app, path/file.py:app) or a suite file")
        flags = OwnFlags(
            options=tuple(option or ()),
            route=route,
            method=method,
            headers=tuple(header or ()),
            body=body,
            expect_status=expect_status,
            request_timeout_s=request_timeout_s,
            app_name=app_name,
            paths=paths,
            header_sets=headers,
            draw=draw,
            overrides=_overrides(given),
        )
        suite = own_suite(target, flags)
        if suite is None:
            wrong = [name.replace("_", "-") for name in OF_OWN_APPS if given[name]]
            if wrong:
                raise BadInput(f"--{wrong[0]}: {target} measures an app that comes with the tool")
            return measure.fresh("run", target, flags.overrides, out)
        return measure.Sitting("run", suite, out)

    def placed() -> measure.Sitting:
        return measure.loading_on(anew(), load_on, load_nodes)

    if resume is not None:
        sitting = measure.resumed("run", resume, _with_resume(given), placed)
    else:
        sitting = placed()
    sitting = measure.looking_inside(sitting, profile, no_sample, serve_metrics)
    if dry_run:
        measure.print_plan(sitting)
        return 0
    return measure.run(sitting, shown)


def _with_resume(given: dict[str, object]) -> list[str]:
    """What was given and does not go with --resume, as it is spelt."""
    from serve_bench.cli.flags import asked

    flags = asked(given, "", but=LATER_TOO)
    return ["TARGET" if flag == "--target" else flag for flag in flags]


def _overrides(given: dict[str, object]) -> Overrides:
    """The flags as they go against the suite file. BadInput names the flag and what is allowed."""
    from serve_bench.cli import flags
    from serve_bench.core.axes import parse_env
    from serve_bench.core.suite import Overrides

    windows, window_s, launches = given["windows"], given["window_seconds"], given["launches"]
    flags.check_number("--windows", windows, 1)
    flags.check_number("--window-seconds", window_s, 0.01)
    flags.check_number("--launches", launches, 1, flags.MOST_LAUNCHES)
    if given["quick"]:
        windows = QUICK_WINDOWS if windows is None else windows
        window_s = QUICK_WINDOW_S if window_s is None else window_s
    env = given["env"]
    return Overrides(
        variants=flags.names(given["variant"]),
        env=parse_env(env if isinstance(env, list) else [], "--env"),
        clients=flags.names(given["clients"]),
        windows=windows if isinstance(windows, int) else None,
        window_s=float(window_s) if isinstance(window_s, int | float) else None,
        launches=launches if isinstance(launches, int) else None,
    )
