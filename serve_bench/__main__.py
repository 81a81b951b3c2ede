"""`serve-bench`, also as `python -m serve_bench`."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Runs the command line, and exits.

    While its modules are imported, which takes up to half a second, Ctrl-C ends the process as it
    ends any program: Python would show where in an import it was.
    """
    for descriptor in range(3):  # a file of ours would take the place of one that is closed
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where it is ignored, as behind nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from serve_bench.cli.program import main as program

    signal.signal(signal.SIGINT, before)
    program()


if __name__ == "__main__":
    main()
