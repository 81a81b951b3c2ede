"""`serve-bench versus`: each side compared with A, in rounds of launches or of running services."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from serve_bench.analysis.comparing import describe_noise
from serve_bench.benchmarks.versus.bench import VersusRounds, fit_sides
from serve_bench.benchmarks.versus.options import VersusOptions
from serve_bench.benchmarks.versus.spec import (
    REPEATED,
    URL_GATE,
    VersusSpec,
    check_distinct,
    check_sides,
)
from serve_bench.cli import print_note
from serve_bench.cli.gate import Gate, read_flags
from serve_bench.cli.request import add_all_flags, read_request
from serve_bench.cli.sides import (
    SideFlags,
    SidesExperiment,
    drop_noop,
    fit_app,
    make_spec,
    read_rows,
    read_side,
)
from serve_bench.cli.sitting import Place, Sitting
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.own_app import Asked
from serve_bench.core.plan import Suite, client_of
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.core.result import Result
from serve_bench.core.traffic import GRPC, HANDLES
from serve_bench.load.workers import usable_cores
from serve_bench.observing.host import free_memory_bytes
from serve_bench.serving.launch_spec import check_tracing
from serve_bench.spec.sides import Side
from serve_bench.spec.slicing import Slicing
from serve_bench.view.verdict_words import stop_text

#: Flags about clusters that are started; services that are up already refuse them.
OF_LAUNCHES: Final = frozenset(
    """app each_flag a_env b_env a_python b_python a_option b_option budget_s route
    request_timeout_s grpc_servicer call no_sample trace""".split()
)

R = TypeVar("R", Asked, Request)

ADDRESS: Final = re.compile(r"(?:(?P<name>[^=/:]+)=)?(?P<url>\w+://.*)", re.DOTALL)
"""A service that is up already as a side: `[NAME=]URL`."""


class VersusRun(SidesExperiment[VersusOptions, VersusSpec]):
    """A run of versus: flags become sides, VersusRounds measures them, a Gate judges the result."""

    _requests: tuple[Request, ...] = ()  # to services that are up already; () of launches

    def __init__(self, options: VersusOptions) -> None:
        super().__init__(options)
        self._gate = read_flags(options)

    def read(self) -> VersusSpec:
        spec, self._requests = read_versus(self.options, self._gate)
        return spec

    def restore(self, stored: Mapping[str, Any]) -> VersusSpec:
        return VersusSpec.stored(stored)

    def prepare(self, asked: VersusSpec, earlier: Result | None) -> VersusSpec:
        if earlier is None and asked.urls is None:
            asked = fit_sides(asked, usable_cores(), free_memory_bytes())
            asked.check_budget()
        asked = super().prepare(asked, earlier)
        rounds = asked.rounds // len(asked.turns)
        self._gate.check_rounds(rounds, f"--rounds {rounds}")
        self._trace = self.options.trace
        if self._trace is not None:
            if not any(client_of(row) == "raw" for row in asked.rows):
                raise BadInput("--trace: is for rows of the raw client (--clients raw:8)")
            for side in asked.sides:
                check_tracing(side.variant)
        return asked

    def rounds_at(self, place: Place, chosen: dict[str, Slicing]) -> VersusRounds:
        about = (self.asked, place.folder, place.run_id, chosen, self._trace)
        budget_s = self.asked.budget_s if self.earlier is None else None
        return VersusRounds(*about, rounds=self.rounds, requests=self._requests, budget_s=budget_s)

    def begin(self) -> None:
        stop = None if self.earlier is None else self.earlier.stop
        if stop is not None and not self.rounds:
            print_note(f"note: nothing to measure: {stop_text(stop)}; --rounds +6 adds rounds")
        if self._requests:
            lacks = "the interval excludes the spread between launches"
            print_note(f"note: running services are not launched: {lacks}")
        named = (f"{letter} is {label}" for label, letter in self.asked.letters.items())
        print_note("note: " + ", ".join(named))
        if self.asked.together is not None:
            print_note(f"note: {self.asked.turns_text}")

    def sitting(self) -> Sitting:
        letters = self.asked.letters
        sitting = replace(super().sitting(), set_env="--a-env, --b-env set it", letters=letters)
        return replace(sitting, again=None, set_env=None) if self._requests else sitting

    def show(self, result: Result, folder: Path) -> int:
        """Print the report and close the gate: both from the same comparison."""
        comparing = self._gate.judge(result)
        for text in describe_noise(result, self._gate.noise):
            print_note(f"warning: {text}")
        self.report.show(self.report.report(result, folder, comparing))
        return self._gate.close(*comparing.split())


def read_sides(options: VersusOptions) -> list[SideFlags]:
    """Read the flags of A and each B (A alone: --aa, --audit, --each-flag). Raises BadInput."""
    alone = [name for name in ("aa", "audit", "each_flag") if getattr(options, name)]
    names = ("b", "b_env", "b_python", "b_option", *alone[1:])
    if alone and (given := [name for name in names if getattr(options, name)]):
        flag, other = (name.replace("_", "-") for name in (alone[0], given[0]))
        raise BadInput(f"--{flag}: runs A against itself; it does not go with --{other}")
    others: list[str | None] = [*(options.b or ())] or [None]
    words = [options.a, *([] if alone else others)]
    sides = []
    for place, word in enumerate(words):
        letter = "b" if place else "a"
        if word is None and not options.aa:  # --aa without --a: Serve without flags
            more = "; A against itself is --aa" if letter == "b" else ""
            takes = "it takes VARIANT, APP, VARIANT,APP or http://HOST:PORT"
            raise BadInput(f"--{letter}: is missing; {takes}{more}")
        fields = (f"{letter}_env", f"{letter}_python", f"{letter}_option")
        env, python, settings = (getattr(options, name) for name in fields)
        places = f"--{letter}", f"--{letter}-option"
        sides.append(SideFlags(*places, word or "default", settings or (), env or (), python))
    return sides


def read_versus(options: VersusOptions, gate: Gate) -> tuple[VersusSpec, tuple[Request, ...]]:
    """Read the sides, and the requests to them where they are up already. Raises BadInput."""
    suite, flags = read_rows(options), read_sides(options)
    services = any(ADDRESS.fullmatch(side.word) for side in flags)
    asked, requests = None, list[Request]()
    if services:
        gate = replace(gate, metrics=URL_GATE) if gate.metrics is None else gate
        suite, asked = drop_noop(suite), _read_request(options, gate, suite)
        sides, requests = _read_services(asked, flags)
        requests += requests if options.aa else []
        if options.audit:
            sides = [Side(f"{sides[0].label}{REPEATED}"), *sides]
            requests = [repeat(requests[0]), *requests]
    else:
        sides = [read_side(options, side, suite) for side in flags]
        if options.audit:
            sides = audit(sides[0])
        if options.each_flag:
            sides += sides[0].without_each_flag()
            if len(sides) < 2:
                raise BadInput(f"--each-flag: {sides[0].label} has no flag to be taken away")
        check_sides(sides)
        suite = fit_app(options, suite, sides[0].app)
    about = {"looks": not options.all_rounds, "request": asked}
    spec = make_spec(VersusSpec, options, suite, sides, gate, **about)
    if services:
        urls = zip(spec.letters, (request.url for request in requests), strict=True)
        return replace(spec, urls=dict(urls)), tuple(requests)
    spec.check_cells()
    return spec, ()


def audit(side: Side) -> list[Side]:
    """Return a side that repeats one request, and the side itself (caches). Raises BadInput."""
    if (own_app := side.app.own_app) is None:
        raise BadInput("--audit: is for your own app, or a service that is up already")
    app = replace(side.app, own_app=replace(own_app, asked=repeat(own_app.asked)))
    return [replace(side, label=f"{side.label}{REPEATED}", app=app), side]


def repeat(asked: R) -> R:
    """Return the first of several requests alone. Raises BadInput where there is one."""
    first = {name: getattr(asked, name)[:1] for name in "paths bodies header_sets methods".split()}
    if (once := replace(asked, **first)) == asked:
        raise BadInput("--audit: takes requests that differ: --paths, --headers or several -b")
    return once


def _read_request(options: VersusOptions, gate: Gate, suite: Suite) -> Asked:
    """Read what services are asked for. Raises BadInput on flags that are of launches."""
    if wrong := options.changed(lambda option: option.name in OF_LAUNCHES):
        raise BadInput(f"--a: a service that is up already does not go with {', '.join(wrong)}")
    if gate.metrics is not None and "cpu" in gate.metrics:
        raise BadInput("--gate: cpu: nothing is known of the processes of services; leave it out")
    for row in suite.rows:
        if row.protocol in GRPC | HANDLES:
            raise BadInput(f"--protocol: {row.protocol}: is for apps that are launched")
    return read_request(add_all_flags(Content(options.command), options), suite.rows[0].protocol)


def _read_services(asked: Asked, sides: Sequence[SideFlags]) -> tuple[list[Side], list[Request]]:
    """Return the sides that are up already, and the request to each. Raises BadInput."""
    named, requests = list[Side](), list[Request]()
    for side in sides:
        if (match := ADDRESS.fullmatch(side.word)) is None:
            other = "the other side is a service that is up already"
            raise BadInput(f"{side.place}: {other}: it takes one too, as http://HOST:PORT")
        try:
            url = re.sub(r"^(\w+://[^/?#]+)(?=\?|$)", r"\1/", match["url"])  # as it is asked for
            requests.append(replace(asked, route="").request(url))
        except SpecError as error:
            raise BadInput(f"{side.place}: {str(error).removeprefix('url: ')}") from None
        address = hide_in_text(match["url"]).partition("://")[2].rstrip("/")
        named.append(Side(match["name"] or address))
    check_distinct([side.label for side in named], requests)
    return named, requests
