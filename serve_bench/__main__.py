"""`serve-bench`, also as `python -m serve_bench`."""

from __future__ import annotations

import signal


def main() -> None:
    """Runs the command line, and exits.

    While its modules are imported, which takes up to half a second, Ctrl-C ends the process as it
    ends any program: Python would show where in an import it was.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where it is ignored, as behind nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from serve_bench.cli.program import main as program

    signal.signal(signal.SIGINT, before)
    program()


if __name__ == "__main__":
    main()
