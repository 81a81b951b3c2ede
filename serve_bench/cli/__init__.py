"""The command line. Flags come in here, exit codes go out here.

`serve-bench --help` imports no command, and works without ray.
"""

import sys

from serve_bench.core.errors import visible

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""


def print_note(text: str) -> None:
    """Prints lines on stderr, and nothing else prints there: names in them may be a stranger's."""
    print(visible(text), file=sys.stderr, flush=True)
