"""The plugin of pytest: the fixtures `serve_target` and `serve_benchmark`, options and a summary.

Rule: pytest is imported in this folder alone, and our own modules only once a fixture needs them,
since every session of pytest loads this module. Figures go through pytest-benchmark, which need not
be there until `serve_benchmark` is used. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from serve_bench.core.result import VariantUsed
    from serve_bench.pytest_plugin.benchmark import ServeBenchmark
    from serve_bench.pytest_plugin.target import ServeTarget

VARIANTS: Final = ("default", "haproxy", "optimized")

#: What pytest-benchmark may be registered as.
BENCHMARK_NAMES: Final = ("benchmark", "pytest_benchmark.plugin")

NOT_INSTALLED: Final = "serve_benchmark needs pytest-benchmark: pip install pytest-benchmark"
SWITCHED_OFF: Final = (
    "serve_benchmark needs pytest-benchmark, which -p no:benchmark switches off; for one round "
    "that is checked and not timed, use --benchmark-disable"
)

#: Name and lines of each benchmark, for the summary.
REPORTS: Final = pytest.StashKey[list[tuple[str, list[str]]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--serve-variant`, `--serve-env`, and `serve_bench_variant` in the configuration."""
    group = parser.getgroup("serve-bench", "benchmarks of Ray Serve")
    group.addoption(
        "--serve-variant",
        choices=VARIANTS,
        help="how the cluster of serve_target is started [serve_bench_variant, else default]",
    )
    group.addoption(
        "--serve-env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="environment of all processes of that cluster; repeatable",
    )
    parser.addini("serve_bench_variant", "the variant of serve_target's cluster", default="default")


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what is not allowed before anything starts; offer `serve_benchmark`."""
    if config.getini("serve_bench_variant") != "default" or config.getoption("serve_env"):
        variant_of(config)
    config.stash[REPORTS] = []
    there = any(config.pluginmanager.hasplugin(name) for name in BENCHMARK_NAMES)
    config.pluginmanager.register(_Timed() if there else _Untimed(), "serve-bench-fixture")


@pytest.hookimpl(tryfirst=True)  # before pytest-benchmark, which raises where a gate broke
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write what each benchmark measured, in a few lines."""
    reports = terminalreporter.config.stash.get(REPORTS, [])
    if reports:
        terminalreporter.ensure_newline()
        terminalreporter.section("serve-bench")
    for name, lines in reports:
        terminalreporter.write_line(name)
        for line in lines:
            terminalreporter.write_line(f"  {line}")


def variant_of(config: pytest.Config) -> VariantUsed:
    """Return the variant of options and configuration. Raises pytest.UsageError."""
    from serve_bench.core.errors import BadInput
    from serve_bench.core.variants import BUILT_IN_VARIANTS, parse_env, with_env

    name = config.getoption("serve_variant") or config.getini("serve_bench_variant")
    if name not in BUILT_IN_VARIANTS:
        allowed = ", ".join(BUILT_IN_VARIANTS)
        raise pytest.UsageError(f"serve_bench_variant: {name!r} is not allowed; it takes {allowed}")
    try:
        env = parse_env(config.getoption("serve_env"), "--serve-env")
    except BadInput as error:
        raise pytest.UsageError(str(error)) from None
    return with_env(BUILT_IN_VARIANTS[name], env)


@pytest.fixture(scope="session")
def serve_target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServeTarget]:
    """Yield a Ray Serve cluster for the session: `deploy(app)`, `url`, `variant`, `proof`."""
    from serve_bench.pytest_plugin.target import KeptCluster, ServeTarget

    log = tmp_path_factory.getbasetemp() / "serve-bench" / "cluster.log"
    cluster = KeptCluster(variant_of(request.config), _list_folders(request), log)
    try:
        yield ServeTarget(cluster)
    finally:
        if left := cluster.close():
            message = f"serve_target left something behind: {', '.join(left)}"
            warnings.warn(pytest.PytestWarning(message), stacklevel=1)


def _list_folders(request: pytest.FixtureRequest) -> tuple[Path, ...]:
    """List where apps are looked for, as `ServeTarget.deploy` says it."""
    config = request.config
    folders = [Path(os.getcwd()), config.rootpath]
    if config.inipath is not None:
        folders += [config.inipath.parent / folder for folder in config.getini("pythonpath")]
    folders += [
        item.path.parent
        for item in request.session.items
        if "serve_target" in getattr(item, "fixturenames", ())
    ]
    return tuple(dict.fromkeys(folder.resolve() for folder in folders))


class _Untimed:
    """The stand-in for `_Timed` where there is no pytest-benchmark."""

    @pytest.fixture
    def serve_benchmark(self) -> None:
        """Fail: pytest-benchmark is missing."""
        there = importlib.util.find_spec("pytest_benchmark") is not None
        pytest.fail(SWITCHED_OFF if there else NOT_INSTALLED, pytrace=False)


class _Timed:
    """The fixture over pytest-benchmark's own, with our timer for each test that uses it."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Set our timer by pytest-benchmark's own marker; what the test's marker says stays."""
        if "serve_benchmark" not in getattr(item, "fixturenames", ()):
            return
        from serve_bench.pytest_plugin.benchmark import LoadTimer

        marker = item.get_closest_marker("benchmark")
        options = {} if marker is None else dict(marker.kwargs)
        if "timer" in options:
            raise pytest.UsageError(
                f"{item.nodeid}: serve_benchmark has a timer of its own: leave out timer"
            )
        timed = pytest.mark.benchmark(**options, timer=LoadTimer().load_time)
        item.add_marker(timed, append=False)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Keep a failed test from being stored: an assertion may fail once the rounds are done."""
        benchmark = getattr(item, "funcargs", {}).get("serve_benchmark")
        if benchmark is not None and call.excinfo is not None:
            benchmark.drop()

    @pytest.fixture
    def serve_benchmark(
        self, request: pytest.FixtureRequest, benchmark: Any, serve_target: ServeTarget
    ) -> ServeBenchmark:
        """Measure an app or a URL in rounds of `requests`, through pytest-benchmark."""
        from serve_bench.pytest_plugin.benchmark import ServeBenchmark

        return ServeBenchmark(request.node, benchmark, serve_target, request.config.stash[REPORTS])
