"""Small tables. What needs torch is marked and imports it inside."""

import json
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve_bench.serving.apps.dlrm_features import (
    FORMS,
    as_block,
    as_lists,
    as_matrix,
    as_scores,
    features,
    scores_json,
)
from serve_bench.serving.apps.dlrm_shape import Shape
from tests.cases import cases

SMALL = Shape(table_rows=50, sparse_features=5, dense_features=3, width=8, bottom=(16, 8), top=(8,))
ODD = Shape(
    table_rows=7, sparse_features=1, dense_features=1, width=3, bottom=(3,), top=(5, 2),
    rows_per_request=5,
)  # fmt: skip


def test_a_shape_is_read_from_arguments() -> None:
    args = {"table_rows": "50", "bottom": "16,64", "top": [8, 4], "ranker": "plain"}
    assert Shape.from_args(args) == Shape(table_rows=50, bottom=(16, 64), top=(8, 4))


@cases(
    "change, message",
    ({"width": 32}, "bottom: its last layer must be as wide as an embedding"),
    ({"dense_features": 0}, "dense_features: 0 is not allowed"),
    ({"top": ()}, "top: .* is not allowed"),
    ({"table_rows": 10**8}, "table_rows: 26 tables may have"),
)
def test_what_is_no_shape_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shape(**change)


def test_features_are_those_of_the_user_for_ever() -> None:
    dense, ids = features(42, Shape(), seed=3)
    assert dense.shape == (32, 13) and dense.dtype == np.float32
    assert ids.shape == (32, 26) and ids.dtype == np.int32
    # Kept from the first version: another machine or numpy must not give others.
    assert ids[0, :3].tolist() == [43521, 21697, 37394]
    assert dense[31, 12] == np.float32(0.5922396183013916)
    ids = np.concatenate([features(user, SMALL)[1].ravel() for user in range(500)])
    counts, expected = np.bincount(ids, minlength=50), len(ids) / 50
    assert ((counts - expected) ** 2 / expected).sum() < 100  # chi-squared, 49 df: p < 1e-4
    # Blocks hold what lists hold.
    dense, ids = features(5, SMALL)
    lists, matrix = as_lists(dense, ids), as_matrix([as_block(dense, ids)] * 2, SMALL.columns)
    assert matrix.shape == (64, SMALL.columns)
    assert matrix[32:, SMALL.dense_features :].tolist() == lists["sparse"]
    assert matrix[:32].view(np.float32)[:, : SMALL.dense_features].tolist() == lists["dense"]


@given(st.integers(-(2**70), 2**70))
def test_any_user_has_features_in_range(user: int) -> None:
    dense, ids = features(user, SMALL)
    assert dense.min() >= 0 and dense.max() < 1
    assert ids.min() >= 0 and ids.max() < SMALL.table_rows


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40))
def test_json_keeps_every_float32(scores: list[float]) -> None:
    answer = np.array(scores, np.float32).tobytes()
    assert as_scores(answer) == scores
    content = json.loads(scores_json(answer))
    assert list(content) == ["scores"]
    assert np.array(content["scores"], np.float32).tobytes() == answer


def blocks(users: range, shape: Shape, rows: int | None = None) -> list[bytes]:
    return [as_block(*(part[:rows] for part in features(u, shape))) for u in users]


def scored(ranker: Any, payloads: Sequence[Any]) -> list[list[float]]:
    answers = ranker.answers(payloads)
    return [as_scores(answer) if isinstance(answer, bytes) else answer for answer in answers]


def scores_of(
    kind: str, shape: Shape, users: Sequence[int], seed: int = 1, together: int = 100
) -> Any:
    """Score in this process; so many users at a time."""
    from serve_bench.serving.apps import dlrm

    ranker = dlrm.build(kind, shape, "cpu", seed)
    payloads = [FORMS[kind](*features(user, shape, seed)) for user in users]
    scores: list[list[float]] = []
    for at in range(0, len(payloads), together):
        scores += scored(ranker, payloads[at : at + together])
    return np.array(scores)


@pytest.mark.torch
@cases("kind", "plain", "tuned")
def test_a_user_has_the_same_scores_in_every_batch_and_run(kind: str) -> None:
    alone = scores_of(kind, SMALL, range(12), together=1)
    for together in (2, 5, 12):
        assert np.abs(scores_of(kind, SMALL, range(12), together=together) - alone).max() < 1e-5
    assert np.abs(scores_of(kind, SMALL, range(12), seed=2) - alone).max() > 1e-3


@pytest.mark.torch
def test_a_batch_in_chunks_has_the_scores_of_one_that_is_whole() -> None:
    from serve_bench.serving.apps.dlrm import TunedRanker

    whole, chunked = TunedRanker(SMALL, "cpu", seed=1), TunedRanker(SMALL, "cpu", seed=1)
    chunked._chunk_rows = 100
    # Larger, then smaller: what the larger left in the memory must not show.
    for users in (range(2), range(7), range(7, 13), range(13, 14)):
        payloads = blocks(users, SMALL)
        assert np.allclose(scored(chunked, payloads), scored(whole, payloads), rtol=0, atol=1e-5)


@pytest.mark.torch
def test_answers_hold_the_scores() -> None:
    import torch

    from serve_bench.serving.apps.dlrm import TunedRanker, resolve_device

    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="CUDA"):
            resolve_device("cuda")
    tuned = TunedRanker(ODD, "cpu", seed=1)
    payloads = [*blocks(range(3), ODD), *blocks(range(3, 5), ODD, rows=2)]
    assert [len(answer) for answer in tuned.answers(payloads)] == [20, 20, 20, 8, 8]


@pytest.mark.torch
@cases("shape", SMALL, ODD, Shape(table_rows=100), ids=["small", "odd", "full"])
def test_scores_are_those_of_the_model_written_down_once_more(shape: Shape) -> None:
    """In numpy and double precision, straight from the paper."""
    import torch

    from serve_bench.serving.apps.dlrm import Weights

    weights, (dense, ids) = Weights(shape, 1), features(3, shape, 1)
    vectors = []
    hidden = dense.astype(np.float64)
    for weight, bias in weights.layers("bottom"):
        hidden = np.maximum(hidden @ weight.numpy().T.astype(float) + bias.numpy(), 0)
    vectors.append(hidden)
    for number in range(shape.sparse_features):
        table = torch.empty(shape.table_rows, shape.width)
        weights.table(number, table)
        vectors.append(table.numpy().astype(float)[ids[:, number]])
    pairs = [(left * right).sum(axis=1) for left, right in combinations(vectors, 2)]
    hidden = np.concatenate([hidden, np.stack(pairs, axis=1)], axis=1)
    *inner, last = weights.layers("top")
    for weight, bias in inner:
        hidden = np.maximum(hidden @ weight.numpy().T + bias.numpy(), 0)
    logits = (hidden @ last[0].numpy().T + last[1].numpy())[:, 0]
    expected = 1 / (1 + np.exp(-logits))
    assert expected.std() > 1e-3  # scores differ, so that their being equal says something
    for kind in ("plain", "tuned"):
        assert np.abs(scores_of(kind, shape, range(3, 4))[0] - expected).max() < 1e-5


@pytest.mark.torch
@cases(
    "kind, bad, message",
    ("plain", lambda good: {**good, "sparse": good["sparse"][:-1]}, "32 rows of .* and 31 of ids"),
    ("tuned", lambda good: good[:-4], "bytes; a row has 76"),
)
def test_unequal_lists_are_refused(kind: str, bad: Callable[[Any], Any], message: str) -> None:
    from serve_bench.serving.apps import dlrm

    shape = Shape(table_rows=50, sparse_features=6)
    ranker: Any = dlrm.build(kind, shape, "cpu")
    good = FORMS[kind](*features(1, shape))
    with pytest.raises(ValueError, match=message):
        ranker.answers([good, bad(good), good])
    assert len(scored(ranker, [good])[0]) == 32
