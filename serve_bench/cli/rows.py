"""From the flags that commands share to a suite: of a file, or of services that are up already."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from serve_bench.cli import print_note
from serve_bench.cli.flag_values import names
from serve_bench.cli.options import RowOptions, StreamOptions, SuiteOptions
from serve_bench.core.app_spec import APPS
from serve_bench.core.axes import MODEL_APPS, settings, sweeps
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import Suite
from serve_bench.core.request_spec import Request
from serve_bench.core.result import Row, VariantUsed
from serve_bench.core.suite import Overrides, read_suite
from serve_bench.core.variants import parse_env
from serve_bench.observing.profiler import parse_targets, py_spy, why_not_allowed
from serve_bench.runner.model_needs import with_device
from serve_bench.store.files import read_toml, suite_file

QUICK_WINDOWS, QUICK_WINDOW_S = 3, 0.5


def overrides(options: SuiteOptions) -> Overrides:
    """What the flags of all these commands say against a suite file: axes, variants, launches.

    Raises BadInput, which names the flag and what it takes.
    """
    chat = isinstance(options, StreamOptions) and options.chat
    return Overrides(
        variants=names(options.variant),
        env=parse_env(options.env or (), "--env"),
        matrix=sweeps(options.command, options.texts) | ({"protocol": ("stream",)} if chat else {}),
        settings=settings(options.command, options.texts),
        launches=options.launches,
        slo=options.slo_source,
        events=options.events if isinstance(options, StreamOptions) else None,
        event_timeout_s=options.event_timeout_s() if isinstance(options, StreamOptions) else None,
        openai=chat,
    )


def row_overrides(options: RowOptions) -> Overrides:
    """The same, with clients and windows."""
    windows, window_s = options.windows, options.window_seconds
    if options.quick:
        windows = QUICK_WINDOWS if windows is None else windows
        window_s = QUICK_WINDOW_S if window_s is None else window_s
    return replace(
        overrides(options),
        clients=names(options.clients),
        windows=windows,
        window_s=window_s,
        quick=options.quick,
    )


def suite_of(name: str, flags: Overrides) -> Suite:
    """A suite file, by path or name, and flags over it. Raises BadInput before anything starts."""
    file = suite_file(name)
    shown = file.name if file.name == f"{name}.toml" else str(file)
    return known_device(read_suite(read_toml(file), shown, flags))


def known_device(suite: Suite) -> Suite:
    """The suite with the device of its model, where that is "auto". Raises BadInput."""
    if suite.app.name in MODEL_APPS:  # torch takes seconds to load
        print_note("asking torch which device it has")
    return with_device(suite)


def targets_of(profile: str | None) -> tuple[str, ...]:
    """The targets of `--profile`. Raises BadInput on an unknown one, without py-spy, or where it
    may not look into processes."""
    if profile is None:
        return ()
    targets = parse_targets(profile, "--profile")
    py_spy()
    reason = why_not_allowed(os.getpid())
    if reason is not None:
        raise BadInput(f"--profile: {reason}")
    return targets


def named_urls(urls: Sequence[str], unnamed: str | None = None) -> dict[str, str]:
    """Each `NAME=URL` by its name. A single one without a name is called `unnamed`. BadInput."""
    named: dict[str, str] = {}
    for text in urls:
        name, equals, url = text.partition("=")
        if not equals or not name.strip() or "://" in name:
            if unnamed is None or len(urls) > 1:
                raise BadInput(f"--url: {text!r} is not allowed; it takes NAME=URL")
            name, url = unnamed, text
        if name.strip() in named:
            raise BadInput(f"--url: the name {name.strip()} is given twice")
        named[name.strip()] = url
    return named


def service_suite(
    command: str, services: Mapping[str, Request], rows: tuple[Row, ...] = (), **parts: Any
) -> Suite:
    """Services that are up already, as variants of a suite without settings. `parts`: the fields of
    the suite that say how they are loaded."""
    variants = tuple(map(VariantUsed, services))
    no_op = APPS["noop"]  # a suite has an app; nothing asks for this one
    return Suite(command, no_op, variants, ({},), rows, services=services, **parts)
