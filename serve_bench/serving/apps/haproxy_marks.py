"""A program that starts HAProxy with marks of the traced requests.

Ray starts this in the place of HAProxy, with all its arguments. It takes Ray's own configuration,
adds a line of log for each request that carries a `traceparent` which says so, and becomes HAProxy.
Requests that are not traced cost HAProxy a look at their headers. Rule: where Ray logs stays as it
is, but its lines of the access log have our format, since a frontend has one; a configuration in
which the place of the lines is not known is used as it is. How lines are read: core/marks.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

FRONTEND = "frontend http_frontend\n"

TRACED = "{ var(txn.serve_bench) -m found }"

LINE = (
    "%[var(txn.serve_bench)] %[var(txn.serve_bench_at)] %[var(txn.serve_bench_back)] "
    "%TR/%Tw/%Tc/%Tr/%Ta %ST"
)
"""When the request is parsed and when the head of its answer is there, microseconds of the time of
day; then HAProxy's own timers, ms: request, queue, connect, response, all; the status."""

LINES = (
    "# Of serve-bench: a line for each traced request. All others are logged at info.",
    "acl serve_bench_traced req.hdr(traceparent) -m end -- -01",
    "http-request set-var(txn.serve_bench) req.hdr(traceparent),field(2,-) if serve_bench_traced",
    f"http-request set-var(txn.serve_bench_at) date(0,us) if {TRACED}",
    f"http-request set-log-level notice if {TRACED}",
    f"http-response set-var(txn.serve_bench_back) date(0,us) if {TRACED}",
    "log fd@{fd} len 1024 format raw local1 notice",
    f'log-format "{LINE}"',
)


def add_marks(config: str, fd: int) -> str:
    """Add lines for the traced requests to the configuration, written to a descriptor."""
    head, frontend, rest = config.partition(FRONTEND)
    bind, end, rest = rest.partition("\n")
    if not frontend or not bind.lstrip().startswith("bind "):
        return config
    lines = "".join(f"    {line}\n" for line in LINES).replace("{fd}", str(fd))
    return head + frontend + bind + end + lines + rest


def main(binary: str, log: str, args: Sequence[str]) -> None:
    """Become HAProxy with these arguments, and with marks where a configuration can be written."""
    args = list(args)
    if "-f" in args[:-1]:
        place = args.index("-f") + 1
        try:
            with open(args[place], encoding="utf-8") as file:
                config = file.read()
            fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.set_inheritable(fd, True)
            with open(f"{args[place]}.marks", "w", encoding="utf-8") as file:
                file.write(add_marks(config, fd))
            args[place] += ".marks"
        except OSError:  # HAProxy serves without marks
            pass
    os.execv(binary, [binary, *args])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
