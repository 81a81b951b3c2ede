"""What `serve-bench tax` does once its flags are understood: plan, measure, report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from serve_bench.benchmarks.own_app.facts import ingress_of, is_own
from serve_bench.benchmarks.tax.bench import TaxRun
from serve_bench.benchmarks.tax.command import TaxOptions
from serve_bench.benchmarks.tax.request import (
    LAYERS,
    OWN_BARE,
    QUICK_ROUNDS,
    QUICK_SIDE_S,
    ROUNDS,
    ROWS,
    SIDE_S,
    STEADY_S,
    Layer,
    TaxRound,
    TaxSuite,
    expected_s,
    named,
    tax_plan,
)
from serve_bench.benchmarks.versus.command import VersusOptions
from serve_bench.benchmarks.versus.drive import content as versus_content
from serve_bench.benchmarks.versus.flags import planned, rounds_in_all, whole_rounds
from serve_bench.benchmarks.versus.measure import chosen_of
from serve_bench.benchmarks.versus.request import Pairing, VersusSuite
from serve_bench.cli import print_note
from serve_bench.cli.flag_values import names
from serve_bench.cli.gate import read_flags
from serve_bench.cli.options import REQUEST
from serve_bench.cli.sitting import Place, Sitting, done, print_plan, request_of, sit
from serve_bench.core.axes import nearest
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import duration_text
from serve_bench.core.redaction import hide_env_value
from serve_bench.core.result import Result
from serve_bench.report import COMPARED
from serve_bench.runner.runner import Plan
from serve_bench.serving.launch_spec import check_interpreter

PROTOCOLS: Final = ("http", "stream")

OF_VERSUS: Final = tuple(f"{REQUEST} quick threshold slice seed suite no_sample texts".split())
"""Options that mean the same in `versus`."""


def run(options: TaxOptions) -> int:
    """Measures, prints the report, and returns the exit code. Raises BadInput before it begins."""
    from serve_bench.cli.show import ReportRequest, check_format

    check_format(options.format, COMPARED)
    report = ReportRequest(options.format)
    suite, earlier = request_of(
        options,
        from_flags=lambda: _from_flags(options),
        from_record=TaxSuite.from_json,
        content=_content,
    )
    if earlier is not None:
        rounds = rounds_in_all(options.rounds, earlier, suite.versus.rounds)
        suite = replace(suite, versus=replace(suite.versus, rounds=rounds))
    for side in suite.clusters:
        check_interpreter(side.variant)
    every, left = tax_plan(suite), tax_plan(suite, done(earlier))
    if options.dry_run:
        return print_plan(_plan_lines(suite, left), options.out)
    for line in suite.left_out:
        print_note(f"note: {line}")
    parts: list[Pairing] = [part for one in every for row in one.rows for part in row.parts]

    def work(place: Place) -> Plan[Any, Any]:
        chosen = {} if earlier is None else chosen_of(parts, earlier.trials)
        return TaxRun(suite, left, place.folder, place.run_id, chosen).plan()

    sitting = Sitting(
        suite.to_json(),
        [planned for part in parts for planned in part.planned],
        work,
        earlier,
        left=bool(left),
        rounds=None if earlier is None else suite.versus.rounds,
        again="tax",
        set_env="tax measures the variants as they are",
    )
    return sit(sitting, options, report.close)


def _content(suite: TaxSuite, earlier: Result) -> dict[str, Any]:
    """What is held against the suite of a stored run, to go on with it."""
    return {**suite.to_json(), **versus_content(suite.versus, earlier)}


def _from_flags(options: TaxOptions) -> TaxSuite:
    rounds = None if options.resume is not None else whole_rounds(options.rounds)
    target, own = options.target, is_own(options.target)
    if not own and target != "noop":
        raise BadInput(
            f"TARGET: {target!r} is not allowed; it takes noop, or your own app as module:name or "
            "path/file.py:name"
        )
    common = _common(options, f"default,{target}" if own else "default")
    app = common.sides[0].app
    layers, left_out, bare = LAYERS, list[str](), ""
    if app.own is not None:
        asgi, bound = ingress_of(app.own, "TARGET")
        if asgi is None:
            raise BadInput(
                f"TARGET: {target}: the ingress {app.own.ingress} is no ASGI app: tax takes one "
                "with @serve.ingress"
            )
        bare = asgi
        served = tuple(one for one in LAYERS if one.way == "http")
        layers = named((OWN_BARE, *served), bare)
        left_out.append("handle: is measured with the no-op app alone")
        if bound:
            why = f"{app.own.ingress} is made with a deployment ({', '.join(bound)})"
            left_out.append(f"app: {why}, which it cannot have without Serve")
            layers = served
    layers = _chosen(layers, names(options.layers))
    quick = options.quick
    versus = replace(
        common,
        rounds=rounds or (QUICK_ROUNDS if quick else ROUNDS),
        side_s=QUICK_SIDE_S if quick else SIDE_S,
        steady_s=0.5 if quick else STEADY_S,
        looks=False,
    )
    return TaxSuite(versus, layers, tuple(left_out), bare)


def _common(options: TaxOptions, of: str) -> VersusSuite:
    protocol = options.texts.get("protocol", "http")
    if protocol not in PROTOCOLS:
        raise BadInput(
            f"--protocol: {protocol!r} is not allowed; it takes {' or '.join(PROTOCOLS)}"
        )
    texts = options.clients or ROWS
    if any(not one.startswith("raw:") for one in names(texts)):
        raise BadInput(f"--clients: {texts!r} is not allowed; it takes raw:N, one or more")
    shared: dict[str, Any] = {name: getattr(options, name) for name in OF_VERSUS}
    flags = VersusOptions(
        **shared, a=of, a_option=options.option, clients=texts, rounds="1", aa=True
    )
    try:
        common = replace(planned(flags, read_flags(flags)), aa=False)
    except BadInput as error:
        text = re.sub("^--a-option", "--option", str(error))
        raise BadInput(re.sub("^--a:", "TARGET:", text)) from None
    if len(common.cells) > 1:
        raise BadInput(f"--suite: {options.suite}: tax takes one cell, not {len(common.cells)}")
    return common


def _chosen(layers: tuple[Layer, ...], wanted: tuple[str, ...] | None) -> tuple[Layer, ...]:
    if not wanted:
        return layers
    known = [one.name for one in layers]
    for name in wanted:
        if name not in known:
            raise BadInput(
                f"--layers: {name!r} is not allowed{nearest(name, known)}; it takes "
                f"{', '.join(known)}"
            )
    if len(set(wanted)) < 2:
        raise BadInput(f"--layers: {wanted[0]}: two or more are compared")
    return tuple(layer for layer in layers if layer.name in wanted)


def _plan_lines(suite: TaxSuite, left: tuple[TaxRound, ...]) -> Iterator[str]:
    versus = suite.versus
    yield f"app {versus.sides[0].app.name}"
    for layer in suite.layers:
        yield f"{layer.name}: {layer.title}"
    for side in suite.clusters:
        flags = " ".join(f"{k}={hide_env_value(k, v)}" for k, v in side.variant.env.items())
        yield f"cluster {side.label}{f': {flags}' if flags else ''}"
    for line in suite.left_out:
        yield f"left out: {line}"
    for row in versus.rows:
        yield f"    {row.label} ({row.client})"
    for one in left:
        order = [suite.clusters[place].label for place in one.as_pairs(suite).order]
        yield f"round {one.round}: {', '.join(order)} are launched in this order"
    if not left:
        yield "nothing is left to be measured"
        return
    yield (
        f"{len(suite.layers)} layers in {len(left)} round{'' if len(left) == 1 else 's'}, "
        f"{versus.side_s:g} s a layer and row in turn, in slices; "
        f"about {duration_text(expected_s(suite, left))} in all"
    )
