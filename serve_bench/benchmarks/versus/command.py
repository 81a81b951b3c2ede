"""`serve-bench versus`: A against B, with fresh launches of both in every round."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from serve_bench.analysis.comparing import describe_noise, floors_of, of_versus
from serve_bench.benchmarks.versus.bench import VersusRounds
from serve_bench.benchmarks.versus.options import VersusOptions
from serve_bench.benchmarks.versus.spec import QUICK, TIMES, URL_GATE, VersusSpec, check_sides
from serve_bench.cli import print_note
from serve_bench.cli.gate import Gate, read_flags
from serve_bench.cli.report import judged_by
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
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import Suite, client_of
from serve_bench.core.redaction import hide_in_text
from serve_bench.core.request_spec import Request, SpecError
from serve_bench.core.result import Result
from serve_bench.core.traffic import GRPC, HANDLES
from serve_bench.serving.launch_spec import check_tracing
from serve_bench.spec.content import Content
from serve_bench.spec.sides import GATE, THRESHOLD, Side
from serve_bench.spec.slicing import Slicing
from serve_bench.view.verdict_words import stop_text

#: Flags of clusters that are started, and looked into: none with services that are up already.
OF_LAUNCHES: Final = frozenset(
    """app a_env b_env a_python b_python a_option b_option budget route request_timeout_s
    grpc_servicer call no_sample trace""".split()
)

ADDRESS: Final = re.compile(r"(?:(?P<name>[^=/:]+)=)?(?P<url>\w+://.*)", re.DOTALL)
"""A side that is up already, with a name if that is given."""


class VersusRun(SidesExperiment[VersusOptions, VersusSpec]):
    """A and B in rounds, judged after each."""

    _requests: tuple[Request, Request] | None = None

    def __init__(self, options: VersusOptions) -> None:
        super().__init__(options)
        self._gate = read_flags(options)

    def read(self) -> VersusSpec:
        spec, self._requests = read_versus(self.options, self._gate)
        return spec

    def restore(self, stored: Mapping[str, Any]) -> VersusSpec:
        return VersusSpec.stored(stored)

    def prepare(self, asked: VersusSpec, earlier: Result | None) -> VersusSpec:
        asked = super().prepare(asked, earlier)
        self._gate.check_rounds(asked.rounds, f"--rounds {asked.rounds}")
        self._trace = self.options.trace
        if self._trace is not None:
            if not any(client_of(row) == "raw" for row in asked.rows):
                raise BadInput("--trace: is for rows of the raw client (--clients raw:8)")
            for side in asked.sides:
                check_tracing(side.variant)
        return asked

    def rounds_at(self, place: Place, chosen: dict[str, Slicing]) -> VersusRounds:
        about = (self.asked, self.rounds, place.folder, place.run_id, chosen, self._trace)
        budget_s = self.asked.budget_s if self.earlier is None else None
        return VersusRounds(*about, requests=self._requests or (), budget_s=budget_s)

    def begin(self) -> None:
        stop = None if self.earlier is None else self.earlier.stop
        if stop is not None and not self.rounds:
            print_note(f"note: nothing to measure: {stop_text(stop)}; --rounds +6 adds rounds")
        if self._requests:
            print_note(
                "note: running services are not launched: the interval excludes the spread between "
                "launches"
            )
        named = zip("AB", self.asked.sides, strict=True)
        print_note("note: " + ", ".join(f"{letter} is {side.label}" for letter, side in named))

    def sitting(self) -> Sitting:
        letters = {side.label: letter for letter, side in zip("AB", self.asked.sides, strict=True)}
        sitting = replace(super().sitting(), set_env="--a-env, --b-env set it", letters=letters)
        return replace(sitting, again=None, set_env=None) if self._requests else sitting

    def show(self, result: Result, folder: Path) -> int:
        """Prints the report, and what breaks the gate: of one and the same comparison."""
        judged = judged_by(result, self._gate)
        for text in describe_noise(result, self._gate.noise):
            print_note(f"warning: {text}")
        self.report.close(judged, folder)
        return self._gate.close(of_versus(judged))


def read_sides(options: VersusOptions) -> list[SideFlags]:
    """The flags of A and of B; of A alone with --aa. Raises BadInput."""
    given = [name for name in ("b", "b_env", "b_python", "b_option") if getattr(options, name)]
    if options.aa and given:
        word = given[0].replace("_", "-")
        raise BadInput(f"--aa: runs A against itself; it does not go with --{word}")
    sides = []
    for letter in "a" if options.aa else "ab":
        word, env, python, settings = (
            getattr(options, f"{letter}{name}") for name in ("", "_env", "_python", "_option")
        )
        if word is None and not options.aa:  # of which A is what Serve does without flags
            more = "; A against itself is --aa" if letter == "b" else ""
            takes = "it takes VARIANT, APP, VARIANT,APP or http://HOST:PORT"
            raise BadInput(f"--{letter}: is missing; {takes}{more}")
        places = f"--{letter}", f"--{letter}-option"
        sides.append(SideFlags(*places, word or "default", settings or (), env or (), python))
    return sides


def read_versus(
    options: VersusOptions, gate: Gate
) -> tuple[VersusSpec, tuple[Request, Request] | None]:
    """A and B, and the requests to them where they are up already. Raises BadInput."""
    suite, sides = read_rows(options), read_sides(options)
    if any(ADDRESS.fullmatch(side.word) for side in sides):
        return _read_services(options, gate, drop_noop(suite), sides)
    launched = [read_side(options, side, suite) for side in sides]
    check_sides(launched)
    spec = _make_spec(options, gate, fit_app(options, suite, launched[0].app), launched)
    spec.check_cells()
    spec.check_budget()
    return spec, None


def _read_services(
    options: VersusOptions, gate: Gate, suite: Suite, sides: Sequence[SideFlags]
) -> tuple[VersusSpec, tuple[Request, Request]]:
    if wrong := options.changed(options.parameters().keys() - OF_LAUNCHES):
        raise BadInput(f"--a: a service that is up already does not go with {', '.join(wrong)}")
    if gate.metrics is not None and "cpu" in gate.metrics:
        raise BadInput("--gate: cpu: nothing is known of the processes of services; leave it out")
    for row in suite.rows:
        if row.protocol in GRPC | HANDLES:
            raise BadInput(f"--protocol: {row.protocol}: is for apps that are launched")
    content = add_all_flags(Content(options.command), options)
    asked = read_request(content, suite.rows[0].protocol)
    named, requests = list[Side](), list[Request]()
    for side in sides:
        if (match := ADDRESS.fullmatch(side.word)) is None:
            raise BadInput(
                f"{side.place}: the other side is a service that is up already: it takes one too, "
                "as http://HOST:PORT"
            )
        try:
            requests.append(replace(asked.request("http://127.0.0.1"), url=match["url"]))
        except SpecError as error:
            raise BadInput(f"{side.place}: {str(error).removeprefix('url: ')}") from None
        address = hide_in_text(match["url"]).partition("://")[2].rstrip("/")
        named.append(Side(match["name"] or address))
    first, second = requests[0], requests[-1]
    if first == second and not options.aa:
        raise BadInput(f"--a, --b: both are {named[0].label}: use --aa for the noise floor")
    spec = _make_spec(options, gate, suite, named)
    urls = {
        side.label: request.url for side, request in zip(spec.sides, (first, second), strict=True)
    }
    gated = URL_GATE if gate.metrics is None else gate.metrics
    return replace(spec, gate=gated, urls=urls, request=asked), (first, second)


def _make_spec(
    options: VersusOptions, gate: Gate, suite: Suite, sides: Sequence[Side]
) -> VersusSpec:
    noise, times = gate.noise, QUICK if options.quick else TIMES
    return make_spec(
        VersusSpec,
        options,
        suite,
        sides,
        times,
        aa=options.aa,
        threshold=gate.threshold or THRESHOLD,
        gate=GATE if gate.metrics is None else gate.metrics,
        floors={} if noise is None else floors_of(noise),
        noise=None if noise is None else noise.sides[0].run.id,
        budget_s=options.budget,
        looks=not options.all_rounds,
    )
