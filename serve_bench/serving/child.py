"""A child process that speaks JSON lines: commands on its stdin, answers on its stdout.

It stops when its stdin ends, so it notices the parent's death by any signal. Its stderr goes to a
log file.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

from serve_bench.core.secrets import hide

DETAIL_LINES: Final = 12
"""The most lines that explain a failure."""

CHATTER: Final = (
    *("INFO ", "RAY_AUTH_MODE", "Token authentication is enabled"),
    *("UserWarning", "current_device"),
)
"""Words in lines of Ray and torch that do not explain a failure."""

KILLED_S: Final = 10.0
"""How long a killed process may take to be gone."""

Report = Callable[[str, float], None]
"""Takes the name of a phase that ended and the seconds that it took."""


class ChildError(RuntimeError):
    """The child refused, died or gave no answer: one line, and the lines that explain it."""

    def __init__(self, message: str, detail: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.detail = tuple(detail)


class Child:
    """A child process, made by starting it."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        cwd: Path,
        env: Mapping[str, str],
        name: str = "the cluster process",
    ) -> None:
        self._name, self.log = name, log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,  # Ctrl-C at the terminal is for the CLI alone
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin = self._process.stdin
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(
        self,
        command: str,
        body: Mapping[str, Any],
        timeout_s: float,
        report: Report = lambda phase, seconds: None,
        broken: Callable[[], str | None] = lambda: None,
        number: int | None = None,
    ) -> dict[str, Any]:
        """Send a command and wait for its answer. Raises ChildError.

        `broken` is called about once a second and returns why no answer can come any more, or None.
        `number` goes with the command, to a child that answers with it: the answer to an earlier
        command, whose caller was interrupted, is then ignored.
        """
        began = phase_began = time.monotonic()
        numbered = {} if number is None else {"number": number}
        line = json.dumps({"command": command, **body, **numbered}).encode() + b"\n"
        try:
            self._stdin.write(line)
            self._stdin.flush()
        except BrokenPipeError:
            raise self._explain_death(command) from None
        while True:
            left_s = began + timeout_s - time.monotonic()
            try:
                answer = self._answers.get(timeout=min(1.0, max(0.1, left_s)))
            except queue.Empty:
                reason = broken()
                if reason is not None:
                    raise ChildError(f"{reason} during {command}") from None
                if left_s > 1.0:
                    continue
                silent = f"{command} gave no answer in {timeout_s:.0f} s"
                raise ChildError(f"{silent}: a busy host is slow (serve-bench doctor)") from None
            if answer is None:
                raise self._explain_death(command)
            if number is not None and answer.get("number") != number:
                continue
            if answer["event"] == "refused":
                raise ChildError(str(answer["message"]), answer["detail"])
            if answer["event"] == "done":
                return answer
            now = time.monotonic()
            report(str(answer["name"]), now - phase_began)
            phase_began = now

    def alive(self) -> bool:
        """Return whether the process still runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Send SIGKILL, without waiting."""
        self._process.kill()

    def wait(self) -> None:
        """Wait for the end of a killed process, and hide secrets in its log."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel holds it: a leftover
            self._process.wait(KILLED_S)
        with contextlib.suppress(BrokenPipeError):  # bytes left in the buffer for a dead process
            self._stdin.close()
        draft = self.log.with_suffix(".part")
        with contextlib.suppress(OSError), self.log.open("rb") as log, draft.open("wb") as hidden:
            while lines := b"".join(log.readlines(1 << 22)).decode(errors="surrogateescape"):
                hidden.write(hide(lines).encode(errors="surrogateescape"))
            draft.replace(self.log)
        draft.unlink(missing_ok=True)

    def _explain_death(self, command: str) -> ChildError:
        try:
            code = self._process.wait(5)
        except subprocess.TimeoutExpired:
            return ChildError(f"{self._name} closed its output during {command}")
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return ChildError(f"{self._name} ended during {command} ({how})")

    def _listen(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._answers.put(json.loads(line))
        self._answers.put(None)


def last_lines(log: Path) -> list[str]:
    """Return the last lines of a child's log, without those that do not explain a failure."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    lines = [line for line in text.splitlines() if line.strip()]
    return [line for line in lines if not any(word in line for word in CHATTER)][-DETAIL_LINES:]
