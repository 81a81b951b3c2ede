"""The protocol of our programs: commands of the parent and their answers, as JSON lines.

Commands come on stdin; answers go to the descriptor that stdout was. What Ray and others print goes
to stderr, which the parent points at a log.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from queue import Queue
from typing import Any

from actors import Refused, one_line

Actions = dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]]
"""Commands by name: each takes the body of a command and returns its answer, if it has one."""


def read_commands(at_end: Callable[[], None]) -> Queue[dict[str, Any]]:
    """Read the commands on stdin in a thread; at its end call `at_end` and end the process."""
    commands: Queue[dict[str, Any]] = Queue()

    def read() -> None:
        with contextlib.suppress(ValueError):  # the parent died in the middle of a line
            for line in sys.stdin:
                commands.put(json.loads(line))
        at_end()  # the parent is dead
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return commands


class Answers:
    """The answers to commands, with their numbers, by which the parent knows a late one."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._turn, self._numbered = threading.Lock(), dict[str, Any]()

    def say(self, **message: Any) -> None:
        """Write one line. Where the pipe is broken the parent is dead: the end of stdin ends us."""
        with self._turn, contextlib.suppress(BrokenPipeError):
            self._out.write(json.dumps({**message, **self._numbered}) + "\n")
            self._out.flush()

    def serve(self, commands: Iterable[dict[str, Any]], actions: Actions) -> None:
        """Carry the commands out, one after the other."""
        for command in commands:
            action = actions[command.pop("command")]
            self._numbered = {"number": command.pop("number")} if "number" in command else {}
            try:
                self.say(event="done", **(action(command) or {}))
            except Refused as refused:
                self.say(event="refused", message=str(refused), detail=refused.detail)
            except Exception as error:  # noqa: BLE001 - whatever is raised must reach the parent
                traceback.print_exc()
                detail = traceback.format_exc().splitlines()[-12:]
                self.say(event="refused", message=one_line(error), detail=detail)
