"""What `serve-bench tax` does once its flags are understood: plan, measure, report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from serve_bench.benchmarks.own_app.facts import ingress_of, is_own
from serve_bench.benchmarks.tax.bench import TaxRun
from serve_bench.benchmarks.tax.command import TaxOptions
from serve_bench.benchmarks.tax.request import (
    LAYERS,
    OBSERVED_ROWS,
    OBSERVERS,
    OWN_BARE,
    PLAIN,
    QUICK_ROUNDS,
    QUICK_SIDE_S,
    ROUNDS,
    ROWS,
    SIDE_S,
    STEADY_S,
    WINDOW_S,
    Layer,
    TaxRound,
    TaxSuite,
    expected_s,
    named,
    tax_plan,
)
from serve_bench.benchmarks.versus.drive import content as versus_content
from serve_bench.benchmarks.versus.flags import alike, rounds_in_all, whole_rounds
from serve_bench.benchmarks.versus.measure import chosen_of
from serve_bench.benchmarks.versus.request import Pairing, VersusSuite
from serve_bench.cli.flag_values import names, plain_lines
from serve_bench.cli.rows import targets_of
from serve_bench.cli.sitting import Place, Sitting, done, print_plan, request_of, sit
from serve_bench.core.axes import nearest
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import duration_text
from serve_bench.core.result import Result
from serve_bench.core.variants import BUILT_IN_VARIANTS
from serve_bench.report import COMPARED
from serve_bench.runner.runner import Plan
from serve_bench.serving.launch_spec import check_interpreter, check_tracing

PROTOCOLS: Final = ("http", "stream")


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
    _check_host(suite)
    every, left = tax_plan(suite), tax_plan(suite, done(earlier))
    if options.dry_run:
        return print_plan(_plan_lines(suite, left), options.out)
    for line in suite.left_out:
        print(f"note: {line}", file=sys.stderr)
    out = options.resume or options.out
    sitting = replace(_sitting(suite, every, left, out, earlier), plain=plain_lines(options.live))

    return sit(sitting, report.close)


def _sitting(
    suite: TaxSuite,
    every: tuple[TaxRound, ...],
    left: tuple[TaxRound, ...],
    out: Path | None,
    earlier: Result | None,
) -> Sitting:
    parts: list[Pairing] = [part for one in every for row in one.rows for part in row.parts]

    def work(place: Place) -> Plan[Any, Any]:
        chosen = {} if earlier is None else chosen_of(parts, earlier.trials)
        return TaxRun(suite, left, place.folder, place.run_id, chosen).plan()

    return Sitting(
        "tax",
        suite.to_json(),
        [planned for part in parts for planned in part.planned],
        work,
        out,
        earlier,
        left=bool(left),
        rounds=None if earlier is None else suite.versus.rounds,
        again="tax",
        set_env="tax measures the variants as they are",
    )


def _content(suite: TaxSuite, earlier: Result) -> dict[str, Any]:
    """What is held against the suite of a stored run, to go on with it."""
    return {**suite.to_json(), **versus_content(suite.versus, earlier)}


def _check_host(suite: TaxSuite) -> None:
    """BadInput where this host cannot measure what is asked for."""
    for side in suite.clusters:
        check_interpreter(side.variant)
        if side.label == "traced":
            check_tracing(side.variant)
    if any(one.way == "py-spy" for one in suite.layers):
        try:
            targets_of("replica")
        except BadInput as error:
            text = str(error).removeprefix("--profile: ")
            raise BadInput(f"--layers: py-spy: {text}; name the other observers") from None


# ------------------------------------------------------------------------------- from the flags


def _from_flags(options: TaxOptions) -> TaxSuite:
    """The suite of the flags. Raises BadInput."""
    rounds = None if options.resume is not None else whole_rounds(options.rounds)
    target, own = options.target, is_own(options.target)
    if not own and target != "noop":
        raise BadInput(
            f"TARGET: {target!r} is not allowed; it takes noop, or your own app as module:name or "
            "path/file.py:name"
        )
    variant = _variant(options)
    common = _common(options, f"default,{target}" if own else "default")
    app = common.sides[0].app
    layers = OBSERVERS if options.observers else LAYERS
    left_out, bare = list[str](), ""
    if options.observers:
        layers, left_out = _possible(variant, own)
    elif app.own is not None:
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
    layers = _chosen(layers, names(options.layers), options.observers)
    quick, observers = options.quick, options.observers
    versus = replace(
        common,
        rounds=rounds or (QUICK_ROUNDS if quick else ROUNDS),
        side_s=2 * QUICK_SIDE_S if quick and observers else QUICK_SIDE_S if quick else SIDE_S,
        steady_s=0.5 if quick else STEADY_S,
        slice_s=common.slice_s or WINDOW_S if observers else common.slice_s,
        pairing="windows" if observers else "slices",
        sample=common.sample and not observers,
        looks=False,
    )
    return TaxSuite(versus, layers, observers, tuple(left_out), bare, variant)


def _variant(options: TaxOptions) -> str:
    """That of the clusters of observers. Raises BadInput."""
    if options.variant is None:
        return "default"
    if not options.observers:
        raise BadInput("--variant: is of --observers; layers are variants (--layers)")
    if options.variant not in BUILT_IN_VARIANTS:
        raise BadInput(
            f"--variant: {options.variant!r} is not allowed; it takes "
            f"{', '.join(BUILT_IN_VARIANTS)}"
        )
    return options.variant


def _possible(variant: str, own: bool) -> tuple[tuple[Layer, ...], list[str]]:
    """The observers of an app and a variant, and why others are left out."""
    why = dict.fromkeys(("access-log", "proxy-log-off"), "is measured with the no-op app alone")
    if not own:
        without_proxy = f"{variant} has HAProxy in place of the proxy"
        why = {} if variant == "default" else {"proxy-log-off": without_proxy}
    kept = tuple(one for one in OBSERVERS if one.name not in why)
    return kept, [f"{name}: {text}" for name, text in why.items()]


def _common(options: TaxOptions, of: str) -> VersusSuite:
    """Rows, cells and times by the rules of versus. Raises BadInput."""
    protocol = options.texts.get("protocol", "http")
    if protocol not in PROTOCOLS:
        raise BadInput(
            f"--protocol: {protocol!r} is not allowed; it takes {' or '.join(PROTOCOLS)}"
        )
    usual = OBSERVED_ROWS if options.observers else ROWS
    texts = options.clients or usual
    if any(not one.startswith("raw:") for one in names(texts)):
        raise BadInput(f"--clients: {texts!r} is not allowed; it takes raw:N, one or more")
    try:
        common = alike(
            TaxOptions(**{**vars(options), "clients": texts}), "1", of, option=options.option
        )
    except BadInput as error:
        text = str(error)
        if text.startswith("--of-option"):
            text = text.replace("--of-option", "--option", 1)
        raise BadInput(text.replace("--of:", "TARGET:", 1)) from None
    if len(common.cells) > 1:
        raise BadInput(f"--suite: {options.suite}: tax takes one cell, not {len(common.cells)}")
    return common


def _chosen(
    layers: tuple[Layer, ...], wanted: tuple[str, ...] | None, observers: bool
) -> tuple[Layer, ...]:
    """The layers that are named; observers always with what they are compared with."""
    if not wanted:
        return layers
    known = [one.name for one in layers]
    for name in wanted:
        if name not in known:
            raise BadInput(
                f"--layers: {name!r} is not allowed{nearest(name, known)}; it takes "
                f"{', '.join(known)}"
            )
    chosen = {*wanted, *([PLAIN.name] if observers else [])}
    if len(chosen) < 2:
        raise BadInput(f"--layers: {', '.join(chosen)}: two or more are compared")
    return tuple(one for one in layers if one.name in chosen)


# ---------------------------------------------------------------------------------- the plan


def _plan_lines(suite: TaxSuite, left: tuple[TaxRound, ...]) -> Iterator[str]:
    """The plan of a dry run, and about how long it takes."""
    versus = suite.versus
    yield f"app {versus.sides[0].app.name}"
    for layer in suite.layers:
        yield f"{layer.name}: {layer.title}"
    for side in suite.clusters:
        flags = " ".join(f"{name}={value}" for name, value in side.variant.env.items())
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
    how = f"windows of {versus.slice_s:g} s" if suite.observers else "slices"
    yield (
        f"{len(suite.layers)} layers in {len(left)} round{'' if len(left) == 1 else 's'}, "
        f"{versus.side_s:g} s a layer and row in turn, in {how}; "
        f"about {duration_text(expected_s(suite, left))} in all"
    )
