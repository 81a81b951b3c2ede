"""`serve-bench versus`: A against B, with fresh launches of both in every round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from serve_bench.cli import options
from serve_bench.cli import options as gate_flags

if TYPE_CHECKING:
    from serve_bench.benchmarks.versus.request import VersusSuite
    from serve_bench.runner.url import Service

SUITE = "versus"

#: Flags that go with --resume: they change what is shown and judged, not what is measured.
LATER_TOO = ("resume", "format", "dry_run", "threshold", "gate", "fail_on", "noise")

#: Flags of clusters that are started, and looked into: none with --url.
OF_LAUNCHES = (
    *("a", "b", "app", "a_env", "b_env", "a_python", "b_python", "a_option", "b_option"),
    *("budget", "route", "method", "body", "expect_status", "no_sample"),
)

Text = str | None
Pairs = list[str] | None


def versus(
    a: Annotated[Text, typer.Option(help="First side: VARIANT, APP or VARIANT,APP.")] = None,
    b: Annotated[Text, typer.Option(help="Second side, compared with the first.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Fresh launches of both sides [8].")] = None,
    app: Annotated[Text, typer.Option(help="A built-in app for both sides [noop].")] = None,
    clients: Annotated[
        Text, typer.Option(help="Rows: N aiohttp clients, raw:N connections [raw:100].")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Open loop: requests/s; not in slices, so noisier.")
    ] = None,
    url: options.Urls = None,
    header: Annotated[
        Pairs, typer.Option("-H", "--header", help="For --url and own apps: 'Name: value'.")
    ] = None,
    route: Annotated[
        Text, typer.Option(help="Of own apps: path that the load asks for [/].")
    ] = None,
    method: Annotated[Text, typer.Option(help="Of own apps: [GET; POST with a body].")] = None,
    body: Annotated[Text, typer.Option(help="Of own apps: text, or @FILE.")] = None,
    expect_status: Annotated[Text, typer.Option(help="Of own apps: as 200,204 [any 2xx].")] = None,
    aa: Annotated[
        bool, typer.Option("--aa", help="A against itself, or default: the noise floor.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="3 rounds of 4 s a side.")] = False,
    threshold: gate_flags.Threshold = None,
    gate: gate_flags.GateMetrics = None,
    fail_on: gate_flags.FailOn = None,
    noise: gate_flags.Noise = None,
    budget: Annotated[
        Text, typer.Option(help="Fit into so long (10m): fewer seconds, then fewer rounds.")
    ] = None,
    a_env: Annotated[Pairs, typer.Option(help="NAME=VALUE for A; repeatable.")] = None,
    b_env: Annotated[Pairs, typer.Option(help="NAME=VALUE for B; repeatable.")] = None,
    a_python: Annotated[Text, typer.Option(help="Interpreter of A, with a Ray of its own.")] = None,
    b_python: Annotated[Text, typer.Option(help="Interpreter of B.")] = None,
    a_option: Annotated[Pairs, typer.Option(help="num_replicas=2 for A; repeatable.")] = None,
    b_option: Annotated[Pairs, typer.Option(help="The same for B; repeatable.")] = None,
    slice: Annotated[Text, typer.Option(help="Length of a slice, 10ms to 2s [7 drains].")] = None,
    pairing: Annotated[
        Text, typer.Option(help="slices in turn, or duet: at once, on half the cores [slices].")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the order in every pair.")] = 1,
    suite: options.Suite = SUITE,
    out: options.Out = None,
    resume: options.ResumeFrom = None,
    no_sample: options.NoSample = False,
    dry_run: options.DryRun = False,
    format: Annotated[
        str, typer.Option("--format", "-f", help="table, markdown, csv or json.")
    ] = "table",
) -> int:
    """Compare two sides: ratios with their 95 % interval over fresh launches, and a verdict.

    Example: serve-bench versus --a default --b optimized --quick
    """
    given = dict(locals())
    from serve_bench.cli.flags import asked, check_texts
    from serve_bench.core.errors import BadInput
    from serve_bench.report import COMPARED

    check_texts(given)
    if format not in COMPARED:
        raise BadInput(f"--format: {format!r} is not allowed; it takes {', '.join(COMPARED)}")
    wish = gate_flags.read_flags(threshold, gate, fail_on, noise)
    from serve_bench.cli import versus_run  # what drives loads is loaded once flags are read

    if resume is not None:
        given["seed"] = None if seed == 1 else seed
        flags = asked(given, SUITE, but=LATER_TOO)
        stored, earlier = versus_run.resumed(
            resume, flags, lambda: _suite({**given, "seed": seed}, wish)[0]
        )
        return versus_run.run(stored, resume, format, wish, earlier=earlier, dry_run=dry_run)
    planned, services = _suite(given, wish)
    return versus_run.run(planned, out, format, wish, services=services, dry_run=dry_run)


def _suite(
    given: dict[str, object], wish: gate_flags.Gate
) -> tuple[VersusSuite, tuple[Service, Service] | None]:
    """What the flags ask for, and the services of --url. Raises BadInput."""
    from serve_bench.cli.flags import seconds_of
    from serve_bench.cli.own_flags import OwnFlags
    from serve_bench.cli.versus_flags import Asked, judged_by, planned, with_urls

    slice_, budget, rate = _text(given["slice"]), _text(given["budget"]), given["rate"]
    asked = Asked(
        suite=str(given["suite"]),
        sides=(_text(given["a"]), _text(given["b"])),
        env=(_texts(given["a_env"]), _texts(given["b_env"])),
        python=(_text(given["a_python"]), _text(given["b_python"])),
        option=(_texts(given["a_option"]), _texts(given["b_option"])),
        app=_text(given["app"]),
        clients=_text(given["clients"]),
        rate=rate if isinstance(rate, float) else None,
        rounds=_whole(given["rounds"]),
        seed=_whole(given["seed"]) or 0,
        slice_s=None if slice_ is None else seconds_of(slice_, "--slice"),
        budget_s=None if budget is None else seconds_of(budget, "--budget"),
        pairing=_text(given["pairing"]) or "slices",
        aa=bool(given["aa"]),
        quick=bool(given["quick"]),
        sample=not given["no_sample"],
        request=OwnFlags(
            route=_text(given["route"]),
            method=_text(given["method"]),
            headers=() if given["url"] else _texts(given["header"]),
            body=_text(given["body"]),
            expect_status=_text(given["expect_status"]),
        ),
    )
    asked = judged_by(asked, wish)
    if given["url"]:
        from serve_bench.cli.flags import asked as spelt
        from serve_bench.core.errors import BadInput

        but = tuple(name for name in given if name not in OF_LAUNCHES)
        wrong = spelt(given, "", but=but)
        if wrong:
            raise BadInput(f"--url drives what is there; it does not go with {', '.join(wrong)}")
        return with_urls(asked, _texts(given["url"]), _texts(given["header"]))
    return planned(asked), None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(one) for one in value) if isinstance(value, list) else ()


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
