"""Which processes of a launch are missed when they end."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any, Final

import psutil

from serve_bench.serving.server import Process, Serving

#: Starts a process that waits, says its pid, and waits itself.
WITH_A_CHILD: Final = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
input()
child.wait()
"""


def test_a_child_with_the_title_of_its_parent_is_not_missed() -> None:
    """A worker that starts has the raylet's title for a moment, and then its own or none."""
    command = [sys.executable, "-c", WITH_A_CHILD]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        found = [Process(parent.pid, "raylet", "raylet"), Process(child.pid, "raylet", "raylet")]
        launched: Any = SimpleNamespace(
            processes=lambda: found, _haproxy_now=list, _owner=lambda: parent.pid, port=1
        )
        launched._gone = lambda: Serving._gone(launched)
        Serving._note_vital(launched)
        child.kill()
        assert Serving.casualties(launched) == []
        parent.kill()
        parent.wait()
        assert Serving.missing(launched) == [f"raylet {parent.pid} ended"]
        assert Serving.casualties(launched) == [f"raylet {parent.pid} ended"]
