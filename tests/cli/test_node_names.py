"""What nodes are called, which one a word means, and the names of files that came from nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from serve_bench.core.errors import BadInput
from serve_bench.core.nodes import Node, file_name, flag_name, full_name, node_of, short_id
from serve_bench.observing.profiler import SpyOptions
from serve_bench.runner.recording import Wish, _of, raw_beside

ONE = Node("ab" * 28, "10.1.0.1", "one", True, True, 4.0)
TWO = replace(ONE, node_id="abcd" * 14, ip="10.1.0.2", hostname="two", is_head=False)
TWIN = replace(TWO, node_id="ff" * 28)  # on the same machine as TWO
DEAD = replace(TWO, node_id="de" * 28, ip="10.1.0.9", hostname="gone", alive=False, cpus=None)


def test_a_name_tells_a_node_from_all_others() -> None:
    assert (file_name(TWO, [ONE, TWO]), flag_name(TWO, [ONE, TWO])) == ("two", "10.1.0.2")
    nodes = [ONE, TWO, TWIN]
    assert file_name(TWO, nodes) == flag_name(TWO, nodes) == "abcdabcd"
    assert full_name(ONE, nodes) == "node one (10.1.0.1)"
    assert full_name(TWIN, nodes) == "node two (10.1.0.2, ffffffff)"
    alias = replace(TWO, ip="10.1.0.1", node_id="ee" * 28)  # the hostname tells them apart
    assert flag_name(alias, [ONE, alias]) == "two"
    same = replace(ONE, node_id="ab" * 6 + "cd" * 22)
    assert short_id(ONE, [ONE, same]) == "ab" * 6 + "a"
    odd = replace(ONE, hostname="a/b:c-d.e")
    assert file_name(odd, [odd]) == "a_b_c-d.e"


@pytest.mark.parametrize(
    ("word", "node"),
    [("10.1.0.1", ONE), ("one", ONE), ("abab", ONE), ("abcd", TWO), ("ff" * 28, TWIN)],
)
def test_a_word_means_one_node(word: str, node: Node) -> None:
    assert node_of(word, [ONE, TWO, TWIN, DEAD]) == node


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("two", "--node: 2 nodes are called two; take one of: abcdabcd, ffffffff"),
        ("ab", "--node: 2 nodes are called ab; take one of: abababab, abcdabcd"),
        ("gone", "--node: node gone is dead; there are: 10.1.0.1 (one), "),
        ("three", "--node: no node 'three'; there are: 10.1.0.1 (one), abcdabcd (two), ffffffff"),
        ("", "--node: no node ''; there are: "),
    ],
)
def test_a_word_that_means_no_one_node_is_refused(word: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        node_of(word, [ONE, TWO, TWIN, DEAD])
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("out", "place"),
    [
        (None, "profile-two-replica-7.svg"),
        ("x.svg", "x-two-replica-7.svg"),
        ("x.html", "x-two-replica-7.html"),
        ("replica.svg", "two-replica-7.svg"),
        ("x-replica.svg", "x-two-replica-7.svg"),
        ("xreplica.svg", "xreplica-two-replica-7.svg"),
    ],
)
def test_files_of_nodes_have_the_host_in_their_name(out: str | None, place: str) -> None:
    wish = Wish(1.0, SpyOptions(), out=None if out is None else Path("d", out))
    found = wish.place("replica", 7, True, "two")
    assert found == (Path(place) if out is None else Path("d", place))
    # `profile diff FOLDER` finds them by their role.
    assert _of(raw_beside(found), ("replica",)) and not _of(raw_beside(found), ("proxy",))
    if out is not None:
        assert wish.place("replica", 7, False, "two") == Path("d", out)


@pytest.mark.parametrize(
    ("out", "place"), [("x.svg", "x-replica-7.svg"), ("replica.svg", "replica-7.svg")]
)
def test_files_of_this_machine_are_called_as_ever(out: str, place: str) -> None:
    assert Wish(1.0, SpyOptions(), out=Path(out)).place("replica", 7, True) == Path(place)
