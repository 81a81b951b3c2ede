"""Becomes another program that ends with its parent: `python -m serve_bench.load.tied PROGRAM ...`.

wrk and ab read nothing from stdin, so its end cannot tell them to stop as it tells a load worker.
Linux sends SIGKILL to a process that asked for it when the thread that started it ends, and a
program keeps that through exec. Elsewhere it is the program without that. SIGINT, by which these
programs are told to end, reaches them too where the parent has it blocked: threads of Ray do.
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
        if os.getppid() != parent:  # it died before it could be asked for
            sys.exit(3)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()
