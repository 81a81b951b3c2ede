"""`serve-bench`, also as `python -m serve_bench`."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Run the command line, and exit. Ctrl-C in an import ends it without saying in which."""
    # A file of ours would take the place of a descriptor that is closed.
    while (spare := os.open(os.devnull, os.O_RDWR)) < 3:
        pass
    os.close(spare)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where it is ignored, as behind nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from serve_bench.cli.program import main as program

    signal.signal(signal.SIGINT, before)
    program()


if __name__ == "__main__":
    main()
