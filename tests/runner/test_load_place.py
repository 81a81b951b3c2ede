"""Where a load comes from: what is asked for by flag, and what cannot be had."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from serve_bench.load.failures import LoadError
from serve_bench.runner.load_source import LoadOn, NodeLoads, read_load_on
from tests import places

Refuses = Callable[[str, str], None]

BAD = [
    ("--load-nodes 2", "--load-nodes: goes with --load-on ray"),
    ("--load-on ray --load-nodes 0", "--load-nodes: 0 is not allowed; it takes 1 to 10,000"),
    ("--load-on there", "--load-on: 'there' is not allowed; it takes ray, or HOST:PORT of a Ray"),
    ("--load-on a:x", "--load-on: 'a:x' is not allowed"),
    ("--load-on a:70000", "--load-on: 'a:70000' is not allowed"),
    ("--load-on 127.0.0.1:9", "--load-on: no Ray cluster at 127.0.0.1:9: connection refused"),
    ("--load-on ray://127.0.0.1:10001", "--load-on: 'ray://127.0.0.1:10001' is not allowed"),
    ("--load-on :1", "--load-on: ':1' is not allowed"),
]
COMMANDS = (
    "load http://127.0.0.1:9/",
    "micro --quick",
    "noop",
    "sweep",
    "sweep --url a=http://127.0.0.1:9/",
    "press --app noop",
    "press --url a=http://127.0.0.1:9/",
    "recsys --url a=http://127.0.0.1:9/",
)


@pytest.mark.parametrize(("flags", "message"), BAD, ids=[flags for flags, _ in BAD])
def test_bad_input_is_one_line(flags: str, message: str, refuses: Refuses) -> None:
    refuses(f"{COMMANDS[0]} {flags}", message)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_drives_a_load_knows_the_flags(command: str, refuses: Refuses) -> None:
    refuses(f"{command} --load-on there", "--load-on: 'there' is not allowed")


MICRO = places.FORMATS / "2-micro.jsonl"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("load http://a/ --load-on ray --profile proxy", "--profile: does not go with --load-on"),
        ("press --load-on ray --log-requests x.csv", "--log-requests: needs the load of this host"),
        (f"micro --resume {MICRO} --load-on ray", "it does not go with --load-on"),
    ],
)
def test_what_does_not_go_together(line: str, message: str, refuses: Refuses) -> None:
    refuses(line, message)


def test_the_flags_are_read() -> None:
    assert read_load_on(None, None) is None
    assert read_load_on("ray", 3) == LoadOn(None, 3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert read_load_on(address, None) == LoadOn(address, None)


def test_a_cluster_that_is_not_there_is_an_error_of_the_load(tmp_path: Path) -> None:
    place = NodeLoads(LoadOn("127.0.0.1:9", None), "0" * 6, tmp_path / "logs" / "nodes.log")
    with pytest.raises(LoadError, match=r"no Ray cluster at 127\.0\.0\.1:9: connection refused"):
        place.drive()
    place.close()
    assert os.listdir(tmp_path) == []
