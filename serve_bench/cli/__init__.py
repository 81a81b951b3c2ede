"""The command line. Flags come in here, exit codes go out here.

`serve-bench --help` imports no command, and that of a command nothing that runs it.
"""

import sys
from importlib import import_module
from operator import attrgetter
from typing import Any

from serve_bench.core.errors import visible

OK, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""


def find(place: str) -> Any:
    """Import what stands at a place of this package, such as `cli.report:report`."""
    module, _, name = place.partition(":")
    return attrgetter(name)(import_module(f"serve_bench.{module}"))


MOST_OF_A_LINE = 1_500
"""Characters of a line on stderr; what a stranger's record or suite holds may be longer."""


def print_note(text: str) -> None:
    """Print lines on stderr, which nothing else does: names in them may be a stranger's."""
    for line in visible(text).split("\n"):
        more = f"... ({len(line):,} characters)" if len(line) > MOST_OF_A_LINE else ""
        print(f"{line[:MOST_OF_A_LINE]}{more}", file=sys.stderr, flush=True)
