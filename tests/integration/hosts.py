"""Several hosts on one machine: namespaces of network, processes, names and shared memory, joined
by a bridge. For tests of what is said to work on a cluster of several machines.

Each host is held by a process that is the first of its pid namespace, so that all that runs on the
host ends with it; the bridge is in a namespace of its own. A holder ends when its stdin does: after
a SIGKILL of the test too, nothing is left.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

NETWORK = "10.77.0"

ONE_PIPE: dict[str, Any] = {
    **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT},
    "text": True,
}

#: The first process of a host: takes in the dead, and ends with its stdin.
HOLD = "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); sys.stdin.read()"


@dataclass
class Host:
    """One host: its name, its address, and the pid of its first process as seen from outside."""

    name: str
    ip: str
    pid: int
    holder: subprocess.Popen[bytes]

    def words(self, *command: str, cwd: Path | None = None) -> list[str]:
        """The command, to be run on this host; entering its mounts leaves the folder behind."""
        inside = ("nsenter", "-t", str(self.pid), "-n", "-m", "-u", "-i", "-p")
        return [*inside, f"--wdns={cwd or Path.cwd()}", "--", *command]

    def start(
        self, *command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[str]:
        """Starts a command on this host; its output is one pipe."""
        return subprocess.Popen(self.words(*command, cwd=cwd), env=env, **ONE_PIPE)

    def run(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout_s: float = 60.0,
    ) -> str:
        """Runs a command on this host to its end; its output. CalledProcessError when it fails."""
        words = self.words(*command, cwd=cwd)
        done = subprocess.run(words, env=env, timeout=timeout_s, check=True, **ONE_PIPE)
        return str(done.stdout)


class Hosts:
    """So many hosts, 10.77.0.1 and on, as a context manager."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._switch: Host | None = None
        self.hosts: list[Host] = []

    def __enter__(self) -> Self:
        try:
            self._switch = _hold("switch", "", ("--net",))
            self._bridge("link", "add", "br0", "type", "bridge")
            self._bridge("link", "set", "br0", "up")
            for number in range(1, self._count + 1):
                self.hosts.append(self._new_host(number))
        except BaseException:  # Ctrl-C too: no host must stay
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, number: int) -> Host:
        return self.hosts[number]

    def close(self) -> None:
        """Ends all hosts, and with them whatever runs there."""
        for host in [*self.hosts, *([self._switch] if self._switch else [])]:
            assert host.holder.stdin is not None
            host.holder.stdin.close()
            try:
                host.holder.wait(5)
            except subprocess.TimeoutExpired:
                os.kill(host.pid, signal.SIGKILL)
                host.holder.wait()
        self.hosts, self._switch = [], None

    def cut(self, host: Host) -> None:
        """Takes a host off the network, as a pulled cable does."""
        self._bridge("link", "set", f"port{self.hosts.index(host) + 1}", "down")

    def join(self, host: Host) -> None:
        self._bridge("link", "set", f"port{self.hosts.index(host) + 1}", "up")

    def _new_host(self, number: int) -> Host:
        kinds = ("--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc")
        host = _hold(f"host{number}", f"{NETWORK}.{number}", kinds)
        host.run("hostname", host.name)
        host.run("mount", "-t", "tmpfs", "-o", "size=2g", "shm", "/dev/shm")
        port = f"port{number}"
        pair = ("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns")
        self._bridge(*pair, str(host.pid))
        self._bridge("link", "set", port, "master", "br0")
        self._bridge("link", "set", port, "up")
        for words in (
            ("addr", "add", f"{host.ip}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            host.run("ip", *words)
        return host

    def _bridge(self, *words: str) -> None:
        assert self._switch is not None
        command = ("nsenter", "-t", str(self._switch.pid), "-n", "--", "ip", *words)
        subprocess.run(command, check=True, capture_output=True, text=True)


def _hold(name: str, ip: str, kinds: Sequence[str]) -> Host:
    fork = ("--fork", "--kill-child=SIGKILL") if "--pid" in kinds else ()
    holder = subprocess.Popen(
        ["unshare", *kinds, *fork, "--", sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C at the terminal is for the test
    )
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        pid = _first_of(holder.pid) if fork else holder.pid
        if pid is not None and HOLD.encode() in _command_line(pid):
            return Host(name, ip, pid, holder)
        if holder.poll() is not None:
            break
        time.sleep(0.01)
    holder.kill()
    raise OSError(f"namespaces cannot be had: unshare ended with {holder.wait()}")


def _first_of(pid: int) -> int | None:
    """The only child of a process; None before there is one."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


def _command_line(pid: int) -> bytes:
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"" if words.startswith(b"unshare") else words
