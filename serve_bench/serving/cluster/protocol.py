"""How a program of ours answers its parent: JSON lines out, on the descriptor that stdout was.

What Ray and others print goes to stderr, which the parent points at a log.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from actors import Refused, one_line

Actions = dict[str, Callable[[dict[str, Any]], dict[str, Any]]]
"""Commands by name: each takes the body of a command and returns its answer."""


class Answers:
    """The answers to commands, with their numbers, by which the parent tells a late one."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self._turn, self._numbered = threading.Lock(), dict[str, Any]()

    def say(self, **message: Any) -> None:
        """One line. Where the pipe is broken the parent is dead: the end of stdin ends us."""
        with self._turn, contextlib.suppress(BrokenPipeError):
            self._out.write(json.dumps({**message, **self._numbered}) + "\n")
            self._out.flush()

    def serve(self, commands: Iterable[dict[str, Any]], actions: Actions) -> None:
        """Carries the commands out, one after the other."""
        for command in commands:
            action = actions[command.pop("command")]
            self._numbered = {"number": command.pop("number")} if "number" in command else {}
            try:
                self.say(event="done", **action(command))
            except Refused as refused:
                self.say(event="refused", message=str(refused), detail=refused.detail)
            except Exception as error:  # noqa: BLE001 - whatever is raised must reach the parent
                traceback.print_exc()
                detail = traceback.format_exc().splitlines()[-12:]
                self.say(event="refused", message=one_line(error), detail=detail)
