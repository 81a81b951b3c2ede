"""Executes a program that ends with its parent: `python -m serve_bench.load.tied PID PROGRAM ...`.

py-spy does not read stdin, so it does not notice its end as a load worker does. On Linux a process
may request SIGKILL for the end of the thread that started it (PR_SET_PDEATHSIG), and keeps that
through exec. Other systems lack it. SIGINT, which ends py-spy early, is unblocked: threads of Ray
block it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """The first argument is the pid of the parent, the rest the command."""
    parent, argv = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the request
            sys.exit(3)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
