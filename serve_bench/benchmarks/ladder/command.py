"""`serve-bench sweep`: a ladder of users on any target; `recsys`: one per number of rankers."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from serve_bench.benchmarks.ladder.options import RecsysOptions, SweepOptions
from serve_bench.cli.experiment import SuiteExperiment
from serve_bench.cli.request import add_all_flags, services_of
from serve_bench.cli.rows import climb_of, read_content, suite_of
from serve_bench.cli.targets import target_suite
from serve_bench.core.app_spec import USERS
from serve_bench.core.errors import BadInput
from serve_bench.core.ladder import COLLAPSE_RUNS
from serve_bench.core.plan import Suite
from serve_bench.core.request_spec import Request
from serve_bench.spec.suite import Around, read_services


class SweepRun(SuiteExperiment[SweepOptions]):
    """A ladder of users for each cell."""

    def suite(self) -> Suite:
        climb = climb_of(self.options.quick, start=1, runs=COLLAPSE_RUNS)
        return target_suite(self.options, climb=climb)


class RecsysRun(SuiteExperiment[RecsysOptions]):
    """A ladder of users for each number of rankers."""

    def suite(self) -> Suite:
        options, climb = self.options, climb_of(self.options.quick)
        content = read_content(options.suite)
        if options.quick:
            content = content.set("load.users", "auto", "--quick")
        content = add_all_flags(content, options)
        if options.url:
            services = services_of(content, options.url)
            requests = {name: _ask_for_users(request) for name, request in services.items()}
            return read_services(content, requests, climb)
        grows = options.quick or "users" in options.given
        return suite_of(content, Around(climb=climb if grows else None))

    def check(self, suite: Suite) -> None:
        if suite.app.name != "recsys" or suite.ladder is None:
            needs = 'needs app = "recsys", and users in its [load]'
            raise BadInput(f"--suite: {self.options.suite} {needs}")


def _ask_for_users(request: Request) -> Request:
    """Return the request with a path for each user in turn. Raises BadInput."""
    parts = urlsplit(request.url)
    if parts.query or parts.fragment:
        raise BadInput(f"--url: {request.url!r} is not allowed; ?user_id=... is added to it")
    paths = tuple(f"{parts.path or '/'}?user_id={user}" for user in USERS)
    return replace(request, paths=paths, expect_status=(200,))
