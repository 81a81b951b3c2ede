import pytest

from serve_bench.core import usage
from serve_bench.core.facts import OtherProgram, TrialUsage

S = 1_000_000_000
#: Half a core for two seconds, then a whole one for two.
TOTALS = [(0, 0), (1 * S, S // 2), (2 * S, S), (3 * S, 2 * S), (4 * S, 3 * S)]


def test_the_share_is_of_one_core_and_of_the_span_alone() -> None:
    assert [usage.total_at(TOTALS, at) for at in (S // 2, 3 * S, 9 * S)] == [S / 4, 2 * S, 3 * S]
    assert usage.cpu_percent(TOTALS, 0, 4 * S) == (75.0, 4 * S)
    assert usage.cpu_percent(TOTALS, 2 * S, 4 * S) == (100.0, 2 * S)
    share, _ = usage.cpu_percent(TOTALS, 3 * S // 2, 5 * S // 2)
    assert share == pytest.approx(75.0)
    assert usage.cpu_percent(TOTALS, 3 * S, 10 * S) == (100.0, S)  # of the time that it was seen
    assert usage.cpu_percent(TOTALS, 5 * S, 6 * S) == (None, 0)
    assert usage.cpu_percent(TOTALS[:1], 0, S) == (None, 0)
    close = [*TOTALS, (4 * S + 1000, 3 * S + 9000)]  # readings that are too close
    assert usage.cpu_percent_max(close, 0, 5 * S) == 100.0
    assert usage.cpu_percent_max(close, 0, 2 * S) == 50.0
    assert usage.cpu_percent_max([], 0, S) is None
    summary = usage.summary_of(usage.Track(7, "replica", "ray::ServeReplica:a:B"), 0, S)
    assert summary.pid == 7 and summary.role == "replica" and summary.seen_s == 0
    unknown = ("cpu_percent", "rss_mb", "pss_mb", "threads", "run_queue_wait_percent")
    assert {getattr(summary, name) for name in unknown} == {None}  # and never zero
    # The host counts all cores, and says when steal is not told.
    readings = [usage.HostReading(0, 0, None), usage.HostReading(2 * S, 3 * S, None)]
    host = usage.host_summary(readings, 0, 2 * S, cores=2)
    assert host.cpu_percent == 150.0 and host.cores == 2
    assert host.steal_percent is None
    stolen = [usage.HostReading(0, 0, 0), usage.HostReading(2 * S, 0, S)]
    assert usage.host_summary(stolen, 0, 2 * S, cores=2).steal_percent == 50.0


def test_threads_the_busiest_its_waiting_and_a_thread_that_is_new() -> None:
    track = usage.Track(7, "replica", "r", cpu_ns=TOTALS, names={2: "loop"})
    track.rss_bytes += [(0, 10_000_000), (2 * S, 90_000_000), (9 * S, 990_000_000)]
    track.threads += [
        usage.Threads(0, {1: 0, 2: 5 * S}, {1: 0, 2: 0}, {1: 0, 2: 100}),
        usage.Threads(
            2 * S, {1: S // 10, 2: 6 * S, 3: S // 5}, {1: 0, 2: S, 3: 0}, {1: 0, 2: 300, 3: 2}
        ),
    ]
    summary = usage.summary_of(track, 0, 2 * S)
    assert (summary.threads, summary.busiest_thread) == (3, "loop")
    assert (summary.busiest_thread_percent, summary.run_queue_wait_percent) == (50.0, 50.0)
    assert (summary.turns_per_s, summary.rss_mb) == (101.0, 90.0)


def test_other_programs_by_their_means_and_by_what_was_typical() -> None:
    spans = [
        usage.OthersSpan(0, S, {7: S // 2, 8: S // 4, 9: S // 4}),
        usage.OthersSpan(S, 2 * S, {7: S // 2}),
        usage.OthersSpan(2 * S, 3 * S, {}),
        usage.OthersSpan(3 * S, 4 * S, {7: S}),  # begins when the row ends
    ]
    names = {7: "python x.py", 8: "cc1", 9: "cc1"}
    others = usage.others_summary(spans, names, S // 2, 3 * S)
    assert others.typical_percent == 50.0
    assert others.programs == (
        OtherProgram(program="python x.py", pid=7, processes=1, cpu_percent=30.0),
        OtherProgram(program="cc1", pid=8, processes=2, cpu_percent=10.0),
    )
    words = "python x.py (pid 7) used 30 % of a core, cc1 (2 processes) 10 %"
    used, nothing = TrialUsage(others=others), TrialUsage()
    assert usage.others_words([used]) == words
    halves = words.replace("30", "15").replace("10", "5")
    assert usage.others_words([used, nothing]) == halves
    unnamed = usage.others_summary(spans, {}, 0, S)
    assert (unnamed.typical_percent, unnamed.programs) == (0.0, ())
    assert usage.others_words([nothing]) == ""
    assert usage.others_summary([], names, 0, S).typical_percent is None
