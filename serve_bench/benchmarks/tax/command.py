"""`serve-bench tax`: what each layer of Serve adds to a handler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from serve_bench.benchmarks.tax.bench import LayerRounds
from serve_bench.benchmarks.tax.options import TaxOptions
from serve_bench.benchmarks.tax.spec import LAYERS, OWN_BARE, Taxed, TaxSpec, choose_layers
from serve_bench.cli import print_note
from serve_bench.cli.gate import Gate
from serve_bench.cli.sides import (
    SideFlags,
    SidesExperiment,
    fit_app,
    make_spec,
    read_rows,
    read_side,
)
from serve_bench.cli.sitting import Place, Sitting
from serve_bench.core.errors import BadInput
from serve_bench.serving.own_apps import ingress_of
from serve_bench.spec.slicing import Slicing
from serve_bench.spec.target import is_own

PROTOCOLS: Final = ("http", "stream")


class TaxRun(SidesExperiment[TaxOptions, TaxSpec]):
    """Layers that are measured in rounds."""

    def read(self) -> TaxSpec:
        return read_tax(self.options)

    def restore(self, stored: Mapping[str, Any]) -> TaxSpec:
        return TaxSpec.stored(stored)

    def rounds_at(self, place: Place, chosen: dict[str, Slicing]) -> LayerRounds:
        return LayerRounds(self.asked, place.folder, place.run_id, chosen, rounds=self.rounds)

    def begin(self) -> None:
        for line in self.asked.tax.left_out:
            print_note(f"note: {line}")

    def sitting(self) -> Sitting:
        return replace(super().sitting(), set_env="tax measures the variants as they are")


def read_tax(options: TaxOptions) -> TaxSpec:
    """Read the layers of the target, and how they are loaded. Raises BadInput."""
    target, is_users = options.target, is_own(options.target)
    if not is_users and target != "noop":
        takes = "it takes noop, or your own app as module:name or path/file.py:name"
        raise BadInput(f"TARGET: {target!r} is not allowed; {takes}")
    protocol = options.given.get("protocol", "http")
    if protocol not in PROTOCOLS:
        takes = f"it takes {' or '.join(PROTOCOLS)}"
        raise BadInput(f"--protocol: {protocol!r} is not allowed; {takes}")
    suite = read_rows(options)
    word = f"default,{target}" if is_users else "default"
    side = read_side(options, SideFlags("TARGET", "--option", word, options.option or ()), suite)
    suite = fit_app(options, suite, side.app)
    if len(suite.cells) > 1:
        raise BadInput(f"--suite: {options.suite}: tax takes one cell, not {len(suite.cells)}")
    layers, left_out, bare = LAYERS, list[str](), ""
    if side.app.own_app is not None:
        asgi, bound = ingress_of(side.app.own_app, "TARGET")
        if asgi is None:
            words = f"the ingress {side.app.own_app.ingress} is no ASGI app"
            raise BadInput(f"TARGET: {target}: {words}: tax takes one with @serve.ingress")
        bare = asgi
        served = tuple(layer for layer in LAYERS if layer.way == "http")
        layers = (OWN_BARE, *served)
        left_out.append("handle: is measured with the no-op app alone")
        if bound:
            why = f"{side.app.own_app.ingress} is made with a deployment ({', '.join(bound)})"
            left_out.append(f"app: {why}, which it cannot have without Serve")
            layers = served
    chosen = choose_layers(layers, options.layers)
    return make_spec(
        TaxSpec,
        options,
        suite,
        [side],
        Gate(options.threshold),
        tax=Taxed(chosen, tuple(left_out), bare),
    )
