"""From the flags that commands share to a suite: of a file, or of services that are up already."""

from __future__ import annotations

import os
from dataclasses import replace

from serve_bench.cli import print_note
from serve_bench.cli.options import LadderOptions, RowOptions, SloOptions
from serve_bench.core.axes import MODEL_APPS
from serve_bench.core.content import Content
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import Ladder
from serve_bench.core.plan import Suite
from serve_bench.core.variants import parse_env
from serve_bench.observing.profiler import parse_targets, py_spy, why_not_allowed
from serve_bench.runner.model_needs import with_device
from serve_bench.spec.request import RequestKeys, ServeKeys
from serve_bench.spec.suite import Around, read_suite
from serve_bench.store.files import read_toml, suite_file

QUICK_WINDOWS, QUICK_WINDOW_S = 3, 0.5

#: --quick: steps of 3 s, and no refinement around the best.
QUICK_DURATION_S = 3.0
DURATION_S = 20.0


def add_suite_flags(content: Content, options: SloOptions) -> Content:
    """Return the content with the flags that are keys of a suite.

    They are of its rows and cells, its variants and objectives."""
    others = {*RequestKeys.options(), *ServeKeys.options()}
    if options.spec is not None:
        others |= options.spec.options().keys()
    keys = options.parameters()
    flags = [(keys[name], value) for name, value in options.given.items() if name not in others]
    if any(option.key.startswith("matrix.") for option, _ in flags):
        content = content.without("cells", "matrix")
    for option, value in flags:
        content = content.set(option.key, value, option.flag)
    content = content.over("env", parse_env(options.env or (), "--env"), "--env")
    return content.set("slo", options.slo, "--slo")


def add_flags(content: Content, options: SloOptions) -> Content:
    """Return the content with the flags that commands share over it: axes, variants, objectives.

    Also the numbers of a suite and, of a load that grows, the length of a step, in windows of about
    a second: at least three, for a spread."""
    duration_s, quick = getattr(options, "duration", None), getattr(options, "quick", False)
    if isinstance(options, RowOptions) and quick:
        content = content.set("load.windows", QUICK_WINDOWS, "--quick")
        content = content.set("load.window_seconds", QUICK_WINDOW_S, "--quick")
    grows = isinstance(options, LadderOptions) and "users" in options.parameters()
    if grows and (duration_s or quick or "load.windows" not in content):
        seconds = duration_s or (QUICK_DURATION_S if quick else DURATION_S)
        place = "--quick" if duration_s is None else "--duration"
        windows = max(3, round(seconds))
        content = content.set("load.windows", windows, place)
        content = content.set("load.window_seconds", seconds / windows, place)
    content = content.set("quick", quick or None, "--quick")
    return add_suite_flags(content, options)


def read_content(name: str) -> Content:
    """Read a suite file, by path or name. Raises BadInput."""
    file = suite_file(name)
    return Content(file.name if file.name == f"{name}.toml" else str(file), read_toml(file))


def suite_of(content: Content, around: Around | None = None) -> Suite:
    """Read the suite of a file and the flags over it. Raises BadInput before anything starts."""
    if (flag := content.places.get("request.headers")) is not None:
        raise BadInput(f"{flag}: is for --url")
    return known_device(read_suite(content, around))


def known_device(suite: Suite) -> Suite:
    """Find the device of the suite's model, where that is "auto". Raises BadInput."""
    if suite.app.name in MODEL_APPS:  # torch takes seconds to load
        print_note("asking torch which device it has")
    return with_device(suite)


def targets_of(profile: str | None) -> tuple[str, ...]:
    """Read the targets of `--profile`.

    Raises BadInput on an unknown one, without py-spy, or where it may not look into processes."""
    if profile is None:
        return ()
    targets = parse_targets(profile, "--profile")
    py_spy()
    reason = why_not_allowed(os.getpid())
    if reason is not None:
        raise BadInput(f"--profile: {reason}")
    return targets


def climb_of(quick: bool, start: int = 10, runs: int = 1) -> Ladder:
    """Return how a load grows, --quick or not. `runs`: how often a fallen step is measured."""
    ladder = Ladder(start=start, runs=runs)
    return replace(ladder, refinements=0) if quick else ladder
