"""`serve-bench versus`: A against B, with fresh launches of both in every round."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from serve_bench.cli.command import command
from serve_bench.cli.gate import GateOptions
from serve_bench.cli.options import (
    WITH_RESUME,
    Clients,
    OwnAppOptions,
    RunOptions,
    SuiteName,
    Text,
    Texts,
    Urls,
)

#: Flags of clusters that are started, and looked into: none with --url.
OF_LAUNCHES = frozenset(
    """a b app a_env b_env a_python b_python a_option b_option budget route method body
    expect_status no_sample""".split()
)

#: Flags of the request of an app of the user's own.
OF_OWN_APPS = ("route", "method", "header", "body", "expect_status")


class SideFlags(NamedTuple):
    """The flags of A or B."""

    word: str | None
    env: list[str]
    python: str | None
    options: list[str]


class VersusOptions(RunOptions, OwnAppOptions, GateOptions):
    """The options of `versus`."""

    command = "versus"
    order = (
        *("a", "b", "rounds", "app", "clients", "rate", "url", "header", "route", "method"),
        *("body", "expect_status", "aa", "quick", "threshold", "gate", "fail_on", "noise"),
        *("budget", "a_env", "b_env", "a_python", "b_python", "a_option", "b_option", "slice"),
        *("pairing", "seed", "suite", "out", "resume", "no_sample", "dry_run", "format"),
    )

    suite: SuiteName = "versus"
    a: Annotated[Text, typer.Option(help="First side: VARIANT, APP or VARIANT,APP.")] = None
    b: Annotated[Text, typer.Option(help="Second side, compared with the first.")] = None
    rounds: Annotated[int | None, typer.Option(help="Fresh launches of both sides [8].")] = None
    app: Annotated[Text, typer.Option(help="A built-in app for both sides [noop].")] = None
    clients: Clients = None
    rate: Annotated[
        float | None, typer.Option(help="Open loop: requests/s; not in slices, so noisier.")
    ] = None
    url: Urls = None
    header: Annotated[
        Texts, typer.Option("-H", "--header", help="For --url and own apps: 'Name: value'.")
    ] = None
    route: Annotated[Text, typer.Option(help="Of own apps: path that the load asks for [/].")] = (
        None
    )
    method: Annotated[Text, typer.Option(help="Of own apps: [GET; POST with a body].")] = None
    body: Annotated[Text, typer.Option(help="Of own apps: text, or @FILE.")] = None
    expect_status: Annotated[Text, typer.Option(help="Of own apps: as 200,204 [any 2xx].")] = None
    aa: Annotated[
        bool, typer.Option("--aa", help="A against itself, or default: the noise floor.")
    ] = False
    quick: Annotated[bool, typer.Option("--quick", help="3 rounds of 4 s a side.")] = False
    budget: Annotated[
        Text, typer.Option(help="Fit into so long (10m): fewer seconds, then fewer rounds.")
    ] = None
    a_env: Annotated[Texts, typer.Option(help="NAME=VALUE for A; repeatable.")] = None
    b_env: Annotated[Texts, typer.Option(help="NAME=VALUE for B; repeatable.")] = None
    a_python: Annotated[Text, typer.Option(help="Interpreter of A, with a Ray of its own.")] = None
    b_python: Annotated[Text, typer.Option(help="Interpreter of B.")] = None
    a_option: Annotated[Texts, typer.Option(help="num_replicas=2 for A; repeatable.")] = None
    b_option: Annotated[Texts, typer.Option(help="The same for B; repeatable.")] = None
    slice: Annotated[Text, typer.Option(help="Length of a slice, 10ms to 2s [7 drains].")] = None
    pairing: Annotated[
        Text, typer.Option(help="slices in turn, or duet: at once, on half the cores [slices].")
    ] = None
    seed: Annotated[int, typer.Option(help="Of the order in every pair.")] = 1
    format: Annotated[str, typer.Option("--format", "-f", help="table, markdown, csv or json.")] = (
        "table"
    )

    @property
    def sides(self) -> tuple[SideFlags, SideFlags]:
        """The flags of A and of B."""
        return (
            SideFlags(self.a, self.a_env or [], self.a_python, self.a_option or []),
            SideFlags(self.b, self.b_env or [], self.b_python, self.b_option or []),
        )


@command(VersusOptions)
def versus(options: VersusOptions) -> int:
    """Compare two sides: ratios with their 95 % interval over fresh launches, and a verdict.

    Example: serve-bench versus --a default --b optimized --quick
    """
    from serve_bench.cli.flags import check_texts
    from serve_bench.cli.gate import read_flags
    from serve_bench.core.errors import BadInput
    from serve_bench.report import COMPARED

    check_texts({name: getattr(options, name) for name in options.order})
    if options.format not in COMPARED:
        allowed = ", ".join(COMPARED)
        raise BadInput(f"--format: {options.format!r} is not allowed; it takes {allowed}")
    gate = read_flags(options)
    from serve_bench.cli.versus_flags import planned, with_urls
    from serve_bench.cli.versus_run import run, stored_suite

    if options.resume is not None:
        given = options.given(WITH_RESUME - {"no_sample"})
        suite, earlier = stored_suite(options.resume, given, lambda: planned(options, gate))
        return run(suite, options, gate, earlier=earlier)
    if options.url:
        wrong = options.given(set(options.order) - OF_LAUNCHES)
        if wrong:
            raise BadInput(f"--url drives what is there; it does not go with {', '.join(wrong)}")
        suite, services = with_urls(options, gate)
        return run(suite, options, gate, services=services)
    return run(planned(options, gate), options, gate)
