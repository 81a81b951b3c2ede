"""Single readings of real processes, held against what a process knows of itself."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time

from serve_bench.observing.host import (
    children_of_this,
    cpu_ns,
    pss_bytes,
    rss_bytes,
    thread_name,
    threads_of,
)


def test_readings_agree_with_what_the_process_knows_of_itself() -> None:
    before = time.process_time_ns()
    told = cpu_ns(os.getpid())
    assert told is not None and before <= told <= time.process_time_ns()
    rss = rss_bytes(os.getpid())
    assert rss is not None
    assert rss / 1e6 < 1.3 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    pss = pss_bytes(os.getpid())
    assert pss is not None and pss > 1_000_000
    threads = threads_of(os.getpid())
    assert threads is not None and threading.get_native_id() in threads.run_ns
    assert thread_name(os.getpid(), threading.get_native_id())


def test_a_process_that_is_gone_is_none() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    for read in (cpu_ns, rss_bytes, pss_bytes, threads_of):
        assert read(gone.pid) is None
    assert thread_name(gone.pid, gone.pid) is None


def test_children_are_those_of_every_thread() -> None:
    started: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: started.append(subprocess.Popen(["sleep", "60"])))
    thread.start()
    thread.join()
    (process,) = started
    try:
        assert process.pid in children_of_this()
    finally:
        process.kill()
        process.wait()
