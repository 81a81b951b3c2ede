"""Several hosts on one machine, for tests of what works on a cluster of several machines.

They are namespaces of network, processes, names and shared memory, joined by a bridge. Each host is
held by a process that is the first of its pid namespace, so that all that runs on the host ends
with it; the bridge is in a namespace of its own. A holder ends when its stdin does: after a SIGKILL
of the test too, nothing is left.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.places import begin, execute

NETWORK = "10.77.0"

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
        """Build the command that runs on this host; entering its mounts leaves the folder."""
        inside = ("nsenter", "-t", str(self.pid), "-n", "-m", "-u", "-i", "-p")
        return [*inside, f"--wdns={cwd or Path.cwd()}", "--", *command]

    def start(self, *command: str, env: Mapping[str, str], cwd: Path) -> subprocess.Popen[str]:
        """Start a command on this host; its output is one pipe."""
        return begin(*self.words(*command, cwd=cwd), env=env, stderr=subprocess.STDOUT)

    def run(
        self, *command: str, env: Mapping[str, str] | None = None, timeout_s: float = 60.0
    ) -> str:
        """Run a command on this host; return its stdout. CalledProcessError when it fails."""
        return execute(*self.words(*command), env=env, timeout_s=timeout_s, check=True).stdout

    def end(self) -> None:
        """End the host, and with it whatever runs there."""
        assert self.holder.stdin is not None
        self.holder.stdin.close()
        try:
            self.holder.wait(5)
        except subprocess.TimeoutExpired:
            os.kill(self.pid, signal.SIGKILL)
            self.holder.wait()


@dataclass
class Network:
    """Hosts, 10.77.0.1 and on, and what holds their bridge."""

    switch: Host
    hosts: list[Host] = field(default_factory=list)

    def set_link(self, host: Host, state: str) -> None:
        """Take a host off the network ("down"), as a pulled cable does, or join it ("up")."""
        self.bridge("link", "set", f"port{self.hosts.index(host) + 1}", state)

    def bridge(self, *words: str) -> None:
        execute("nsenter", "-t", str(self.switch.pid), "-n", "--", "ip", *words, check=True)

    def add(self, number: int) -> None:
        kinds = ("--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc")
        host = _hold(f"host{number}", f"{NETWORK}.{number}", kinds)
        self.hosts.append(host)
        host.run("hostname", host.name)
        host.run("mount", "-t", "tmpfs", "-o", "size=2g", "shm", "/dev/shm")
        port = f"port{number}"
        pair = ("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns")
        self.bridge(*pair, str(host.pid))
        self.bridge("link", "set", port, "master", "br0")
        self.set_link(host, "up")
        for words in (f"addr add {host.ip}/24 dev eth0", "link set eth0 up", "link set lo up"):
            host.run("ip", *words.split())


@contextmanager
def joined_hosts(count: int) -> Iterator[Network]:
    """So many hosts; none of them, and nothing that runs there, stays."""
    made = Network(_hold("switch", "", ("--net",)))
    try:
        made.bridge("link", "add", "br0", "type", "bridge")
        made.bridge("link", "set", "br0", "up")
        for number in range(1, count + 1):
            made.add(number)
        yield made
    finally:
        for host in (*made.hosts, made.switch):
            host.end()


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
    """Find the only child of a process; None before there is one."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


def _command_line(pid: int) -> bytes:
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"" if words.startswith(b"unshare") else words
