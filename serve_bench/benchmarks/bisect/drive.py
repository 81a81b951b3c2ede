"""What `serve-bench bisect` does once its flags are understood: ends, search, step, report.

Rule: each comparison is a run of versus in a folder of its own below that of the search, and its
word is made of what is stored there. So a search that is gone on with measures nothing again, and
more rounds make words anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from serve_bench.analysis.comparing import of_versus
from serve_bench.analysis.ratios import FEWEST
from serve_bench.benchmarks.bisect.command import BisectOptions
from serve_bench.benchmarks.bisect.environments import BrokenVersion, Commits, Packages, Versions
from serve_bench.benchmarks.bisect.search import (
    BisectSuite,
    Search,
    SearchLine,
    SearchPoint,
    SearchState,
    Word,
    leading,
    state_of,
    version_of,
    word_of,
)
from serve_bench.benchmarks.own_app.flags import app_of
from serve_bench.benchmarks.versus.drive import content, sitting_of
from serve_bench.benchmarks.versus.flags import MOST_ROUNDS, alike, whole_rounds
from serve_bench.benchmarks.versus.request import Side, VersusSuite, expected_s, versus_plan
from serve_bench.cli.command import FAILED, INTERRUPTED, OK
from serve_bench.cli.flag_values import plain_lines, seconds_of
from serve_bench.cli.sitting import (
    check_same,
    command_line,
    done,
    outcome_of,
    print_plan,
    run_record,
    signals,
)
from serve_bench.core.errors import BadInput
from serve_bench.core.plan import duration_text
from serve_bench.core.result import Result, Resume, Version
from serve_bench.observing.host import fingerprint
from serve_bench.report import COMPARED
from serve_bench.report.page import cache_folder
from serve_bench.serving.launch_spec import check_interpreter
from serve_bench.store import RECORDS_FILE, RunFolder, now_iso, read


def run(options: BisectOptions) -> int:
    """Searches, prints the report, and returns the exit code. Raises BadInput before it begins."""
    from serve_bench.cli.show import ReportRequest, check_format

    request = ReportRequest(options.format)
    check_format(options.format, COMPARED)
    if not options.good or not options.bad:
        again = "; with --resume the command line is given again" if options.resume else ""
        raise BadInput(f"--good, --bad: both are needed: ray==2.58.0, or a commit each{again}")
    earlier = None if options.resume is None else read(options.resume)
    if earlier is not None and earlier.run.command != "bisect":
        raise BadInput(f"--resume: {options.resume} holds a run of {earlier.run.command}")
    if earlier is not None and options.out is not None:
        raise BadInput("--out: not allowed with --resume; the search keeps its folder")
    template = _template(options, earlier)
    plain = plain_lines(options.live)
    budget_s = None if options.budget is None else seconds_of(options.budget, "--budget")
    ends = options.good, options.bad
    packages = any("==" in one for one in ends)
    for flag, value in (("--cutoff", options.cutoff), ("--with", options.extra)):
        if value and not packages:
            raise BadInput(f"{flag}: is for versions of a package: commits share an interpreter")
    versions: Versions
    if packages:
        known = [] if earlier is None else _stored_versions(earlier, ends)
        extra, cache = options.extra or (), cache_folder()
        versions = Packages.of(ends, options.python, options.cutoff, extra, cache, known)
    else:
        versions = Commits.of(ends, _file(options.side))
    suite = BisectSuite(
        template.name,
        versions.points,
        template.rounds,
        template.threshold,
        template.gate,
        options.python,
        options.cutoff,
        tuple(options.extra or ()),
    )
    if earlier is not None and options.resume is not None:
        check_same(options.resume, earlier, {**suite.to_json(), "rounds": _planned(earlier)})
    for line in versions.notes:
        print(f"note: {line}", file=sys.stderr)
    if options.dry_run:
        return print_plan(_plan_lines(suite, template), options.out)
    if earlier is not None and options.resume is not None:
        folder, _ = RunFolder.resume(options.resume)
        folder.append(Resume(command_line(), now_iso(), host=fingerprint(), rounds=suite.rounds))
    else:
        folder = RunFolder.create(options.out, now=datetime.now(UTC))
        folder.append(run_record(folder, "bisect", suite=suite.to_json()))
    deadline_s = None if budget_s is None else time.monotonic() + budget_s
    search = Searching(suite, template, versions, folder, deadline_s, plain)
    with signals(), folder:
        try:
            versions.begin(cache_folder() / "commits" / _digest(folder.path))
            search.work()
        except KeyboardInterrupt:
            search.ended = "interrupted"
        finally:
            versions.close()
        result = read(folder.path)
        request.show(request.report(result, folder.path))
    how = f"resume: the same command line with --resume {folder.path} instead of --out"
    if search.ended == "interrupted":
        print(f"interrupted; {how}", file=sys.stderr)
        return INTERRUPTED
    if search.state.decided:
        return OK
    print(f"no step is decided; {how}", file=sys.stderr)
    return FAILED


def _digest(folder: Path) -> str:
    """A short name for what belongs to a run alone."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]


def _stored_versions(earlier: Result, ends: tuple[str, str]) -> list[str]:
    """The versions that a stored search has, in the order of an index."""
    names = [one.name.partition("==")[2] for one in BisectSuite.from_json(earlier.run.suite).points]
    return names if all(one.partition("==")[2] in names for one in ends) else []


def _planned(earlier: Result) -> int:
    return BisectSuite.from_json(earlier.run.suite).rounds


def _file(of: str) -> Path:
    """The file of the app whose commits are searched. Raises BadInput."""
    file, colon, _ = of.rpartition(",")[2].rpartition(":")
    if not colon or not file.endswith(".py"):
        raise BadInput(f"--of: {of!r}: commits are of an app: path/file.py:app")
    return Path(file)


def _template(options: BisectOptions, earlier: Result | None) -> VersusSuite:
    """What every comparison measures, with the same side twice. Raises BadInput, in the words of
    these flags."""
    rounds, more = options.rounds, 0
    if earlier is not None:
        last = max([_planned(earlier), *(one.rounds or 0 for one in earlier.resumes)])
        if rounds is None or rounds.startswith("+"):
            more = 0 if rounds is None else whole_rounds(rounds[1:]) or 0
            rounds = str(min(last + more, MOST_ROUNDS))
    suite = alike(options, rounds, options.side, options.env, options.option, options.python)
    if suite.rounds < FEWEST:
        raise BadInput(f"--rounds: {suite.rounds} is not allowed; a verdict takes {FEWEST}")
    return suite


def _plan_lines(suite: BisectSuite, template: VersusSuite) -> Iterator[str]:
    """The plan of a dry run, and about how long it takes."""
    for at, one in enumerate(suite.points):
        end = {0: "good: ", len(suite.points) - 1: "bad: "}.get(at, "")
        yield f"{end}{one.name}{f' {one.title}' if one.title else ''}"
    count = state_of(suite.points, ()).search.tests_left
    most = 1 + count + (1 if count else 0)
    plan = versus_plan(template)
    least_s, most_s = expected_s(template, plan[:FEWEST]), expected_s(template, plan)
    yield (
        f"{most} comparison{'' if most == 1 else 's'}: the ends, about {count} between them, and "
        f"the step; {FEWEST} to {suite.rounds} rounds each, {template.side_s:g} s a side and row; "
        f"about {duration_text(most * least_s)} to {duration_text(most * most_s)} in all, beside "
        "the making of what is tested"
    )


@dataclass
class Searching:
    """A search that goes on in `folder`. `deadline_s`: by the monotonic clock. `plain`: progress in
    lines."""

    suite: BisectSuite
    template: VersusSuite
    versions: Versions
    folder: RunFolder
    deadline_s: float | None
    plain: bool = False
    ended: str = ""  # interrupted, or budget

    @property
    def state(self) -> SearchState:
        """What is recorded so far."""
        return state_of(self.suite.points, read(self.folder.path).versions)

    @cached_property
    def line(self) -> SearchLine | None:
        """The figure that tells the ends apart, by their stored comparison."""
        points = self.suite.points
        return leading(of_versus(read(self.folder.path / _name(points[-1], points[0]))))

    def work(self) -> None:
        """Confirms the ends, searches between them, and compares both sides of the step."""
        points, words = self.suite.points, dict[int, Word]()
        if self._compare(points[-1], points[0]).word != "bad":
            return
        search = Search(len(points), words)
        while not self.ended and (at := search.next) is not None:
            words[at] = self._compare(points[at], points[0], self.line).word
        low, high = search.ends
        if not self.ended and high - low < len(points) - 1:
            self._compare(points[high], points[low])

    def _compare(
        self, version: SearchPoint, base: SearchPoint, line: SearchLine | None = None
    ) -> Version:
        """Measures a version against another one until it is decided, and records the word."""
        where = self.folder.path / _name(version, base)
        sides = []
        for point in (base, version):
            try:
                sides.append(self._side(point))
            except BrokenVersion as error:
                why = f"{error}" if point is version else f"{base.name}: {error}"
                return self._keep(Version(version.name, base.name, "broken", why))
        suite = replace(self.template, sides=(sides[0], sides[1]))
        _drop_empty(where)
        earlier = read(where) if (where / RECORDS_FILE).exists() else None
        if earlier is not None:
            check_same(where, earlier, content(suite, earlier))
        if earlier is None or word_of(of_versus(earlier), line) == "undecided":
            left = versus_plan(suite, done(earlier))
            print(f"{version.name} against {base.name}", file=sys.stderr, flush=True)
            budget_s = None if self.deadline_s is None else self.deadline_s - time.monotonic()
            sitting = sitting_of(
                suite,
                left,
                where,
                earlier,
                budget_s=budget_s,
                settled=lambda comparing: word_of(comparing, line) != "undecided",
            )
            outcome = outcome_of(replace(sitting, set_env="--env sets it", plain=self.plain))
            earlier = outcome.result
            if outcome.interrupted:
                self.ended = "interrupted"
            elif earlier.stop is not None and earlier.stop.why == "budget":
                self.ended = "budget"
        names = version.name, base.name
        return self._keep(version_of(of_versus(earlier), names, where.name, line))

    def _side(self, point: SearchPoint) -> Side:
        """A version as a side of versus. Raises BrokenVersion."""
        made, side = self.versions.make(point), self.template.sides[0]
        variant = replace(side.variant, python=made.python or side.variant.python)
        own, app = side.app.own, side.app
        try:
            check_interpreter(variant, "python")
            if own is not None:
                file, _, name = own.target.rpartition(":")
                app = app_of(f"{made.file or file}:{name}", "app", variant.python, own.asked)
        except BadInput as error:
            text = str(error)
            if made.file is not None:  # which lies in a worktree that is gone later
                text = text.replace(made.file, Path(made.file).name)
            raise BrokenVersion(text) from None
        return Side(point.name, variant, app, side.settings)

    def _keep(self, one: Version) -> Version:
        """Records a word that is not recorded yet."""
        if one not in read(self.folder.path).versions:
            self.folder.append(one)
        text = f": {one.why}" if one.why else ""
        print(f"{one.version}: {one.word}{text}", file=sys.stderr, flush=True)
        return one


def _name(version: SearchPoint, base: SearchPoint) -> str:
    """The folder of a comparison."""
    return re.sub(r"[^\w.-]+", "-", f"{version.name}-against-{base.name}")


def _drop_empty(where: Path) -> None:
    """Removes the records of a comparison that a kill left without its first line."""
    with contextlib.suppress(OSError):
        if not (where / RECORDS_FILE).stat().st_size:
            (where / RECORDS_FILE).unlink()
