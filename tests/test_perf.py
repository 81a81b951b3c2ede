"""perf's text to stacks; and perf itself where it is installed and allowed."""

from __future__ import annotations

import pytest

from serve_bench.observing.profiler import PerfUnusable, collapse, record_perf

SCRIPT = """\
haproxy 13239
\t    7f1c2 __pool_free+0x12 (/usr/sbin/haproxy)
\t    8aab1 process_stream (/usr/sbin/haproxy)

haproxy 13239
\tffffffff81 finish_task_switch.isra.0 ([kernel.kallsyms])
\t    8aab1 process_stream (/usr/sbin/haproxy)

haproxy 13239
\t    7f1c2 __pool_free+0x99 (/usr/sbin/haproxy)
\t    8aab1 process_stream (/usr/sbin/haproxy)
"""


def test_samples_are_added_up_with_the_outermost_frame_first() -> None:
    assert collapse(SCRIPT) == {
        ("process_stream (haproxy)", "__pool_free (haproxy)"): 2,
        ("process_stream (haproxy)", "finish_task_switch.isra.0 ([kernel.kallsyms])"): 1,
    }
    assert collapse("") == {}


def test_unknown_frames_in_a_row_become_one() -> None:
    script = "haproxy 1\n\t 1 f (/x/haproxy)\n" + 9 * "\t 2 [unknown] ([unknown])\n"
    assert collapse(script) == {("[unknown] ([unknown])", "f (haproxy)"): 1}


def test_without_perf_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(PerfUnusable, match=r"^perf is not installed \(linux-perf on Debian"):
        record_perf(1, 1.0, 100)


def test_a_perf_that_may_not_record_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: "/bin/false")
    with pytest.raises(PerfUnusable, match=r"^perf may not record: it said nothing$"):
        record_perf(1, 1.0, 100)
