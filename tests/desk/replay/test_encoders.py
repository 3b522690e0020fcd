"""Encoders are opened once for all configs that choose the same ones, and embed each text once."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_tasks import HOUR, START, write_recorded

from foretool.desk.replay.effect import Replays
from foretool.desk.replay.encoders import AHEAD, FIRST, THREADS, TOGETHER, Remembering, share_texts
from foretool.retrieval.corpus import digest
from foretool.retrieval.encoders import EncoderError
from foretool.server.catalog import embedding, encoders
from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.storage.engine import StorageError
from foretool.storage.opening import open_store
from foretool.storage.sql.artifacts import VectorStore

TASKS = [("add two numbers", ["calc__add"]), ("the phase of the moon", ["sky__moon"])]
LONG = (
    "Find out in which phase the moon is tonight and write it down for the children of the second form; "
    "then add the nights that are left until it is full and tell the teacher how many evenings remain for the trip."
)
"""A paragraph, of which each clause is embedded too."""


class Counting:
    """An encoder that counts what it was asked."""

    name = "counting"

    def __init__(self) -> None:
        self.queried: list[str] = []
        self.counts: list[int] = []
        self.read: list[str] = []

    def documents(self, texts: Sequence[str]) -> Any:
        self.read += texts
        return np.eye(8, dtype=np.float32)[[len(text) % 8 for text in texts]]

    def queries(self, texts: Sequence[str]) -> Any:
        self.queried += texts
        self.counts.append(len(texts))
        return np.eye(8, dtype=np.float32)[[len(text) % 8 for text in texts]]


class Weights:
    key = query_key = name = "counting"
    is_slow = False


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """The encoder that every proxy of the test opens."""
    counting = Counting()
    monkeypatch.setattr(embedding, "find_weights", lambda settings: (Weights(),))
    monkeypatch.setattr(encoders, "open_any_encoder", lambda weights, key, in_bulk: counting)
    return counting


def test_a_text_is_embedded_once_for_both_configs(tmp_path: Path, counting: Counting) -> None:
    config = loader.load(write_recorded(tmp_path, TASKS, encoder="minilm-tools"))
    with open_store(config.storage) as store:
        replays = Replays(config, store, START, START + 9 * HOUR)
        found = replays.now
        replays.play(config)
    assert len(found) == 2
    assert sorted(counting.read) == sorted(set(counting.read)) and len(counting.read) == 6
    assert counting.queried and sorted(counting.queried) == sorted(set(counting.queried))


def test_the_next_replay_embeds_no_recorded_text_again_until_it_is_forgotten(
    tmp_path: Path, counting: Counting
) -> None:
    path = write_recorded(tmp_path, [*TASKS, (LONG, ["calc__add"])], encoder="minilm-tools")
    config = loader.load(path)
    with open_store(config.storage) as store:
        first = Replays(config, store, START, START + 9 * HOUR).now
        embedded, kept = list(counting.queried), store.vectors.known("counting")
        assert len(embedded) == len(kept) > len(TASKS) + 1
        assert Replays(config, store, START, START + 9 * HOUR).now == first
    assert counting.queried == embedded
    assert run(["forget", "--text", "moon", "--yes", "--config", str(path)]) == 0
    with open_store(config.storage) as store:
        assert store.vectors.known("counting") == {digest(TASKS[0][0])}


def test_a_replay_tells_its_effect_also_where_the_store_cannot_be_written(
    tmp_path: Path, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = loader.load(write_recorded(tmp_path, TASKS, encoder="minilm-tools"))

    def refuse(self: object, encoder: str, vectors: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(VectorStore, "save", refuse)
    with open_store(config.storage) as store:
        assert len(Replays(config, store, START, START + 9 * HOUR).now) == 2


def test_words_alone_rank_where_no_encoder_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(settings: Any) -> Any:
        raise EncoderError("it is not installed")

    path = write_recorded(tmp_path, TASKS, encoder="minilm-tools")
    monkeypatch.setattr(embedding, "find_weights", fail)
    config = loader.load(path)
    with open_store(config.storage) as store:
        found = Replays(config, store, START, START + 9 * HOUR).now
    assert [task.discoveries for task in found] == [1, 1]


TEXTS = [f"text {number}" for number in range(3 * AHEAD)]


def test_the_texts_that_come_next_are_embedded_many_at_once_and_no_further_ahead_than_they_are_wanted() -> None:
    came = threading.Event()

    class Twice(Counting):
        def queries(self, texts: Sequence[str]) -> Any:
            found = super().queries(texts)
            if len(self.queried) == 3 * FIRST:
                came.set()
            return found

    counting = Twice()
    encoder = Remembering(counting, TEXTS)
    encoder.queries(TEXTS[:2])
    assert came.wait(5.0)
    encoder.queries(TEXTS[2:4])
    encoder.close()
    # The first ones, and then twice as many.
    assert sorted(counting.queried) == sorted(TEXTS[: 3 * FIRST])


def test_no_more_than_so_many_are_embedded_at_once() -> None:
    counting = Counting()
    encoder = Remembering(counting, TEXTS)
    for text in TEXTS:
        encoder.queries([text])
    encoder.close()
    assert sorted(counting.queried) == sorted(TEXTS)
    assert max(counting.counts) <= AHEAD // THREADS + TOGETHER


def test_threads_share_texts_in_batches_of_like_length() -> None:
    texts = ["x" * (number * 7 % 50) + str(number) for number in range(5 * TOGETHER + 3)]
    parts = share_texts(texts)
    assert sorted(text for part in parts for text in part) == sorted(texts)
    assert [len(part) for part in parts] == [3 * TOGETHER, 2 * TOGETHER + 3]
    assert all(len(part[at]) <= len(part[at + 1]) for part in parts for at in range(len(part) - 1))
    assert share_texts([]) == []


def test_a_search_that_nobody_foresaw_is_embedded_by_itself_and_begins_nothing_more() -> None:
    counting = Counting()
    encoder = Remembering(counting, TEXTS)
    found = encoder.queries(["another text"])
    encoder.close()
    assert sorted(counting.queried) == sorted([*TEXTS[:FIRST], "another text"])
    np.testing.assert_array_equal(found, Counting().queries(["another text"]))


def test_an_error_ahead_is_met_again_by_the_search_that_needs_the_text() -> None:
    class Failing(Counting):
        def queries(self, texts: Sequence[str]) -> Any:
            raise EncoderError("it is away")

    encoder = Remembering(Failing(), TEXTS)
    with pytest.raises(EncoderError, match="away"):
        encoder.queries(TEXTS[:1])
    encoder.close()


@pytest.mark.slow
def test_each_text_gets_the_vector_that_it_gets_alone_whatever_is_embedded_with_it() -> None:
    """Else a replay would rank other tools than a proxy."""
    pytest.importorskip("onnxruntime", reason="the encoders' libraries are not installed")
    from foretool.retrieval.encoders import MANIFEST, locate, open_encoder

    weights = next((each for each in MANIFEST if each.package and locate(each) is not None), None)
    if weights is None:
        pytest.skip("no encoder is installed")
    texts = [" ".join(["send", "a", "message", "about", "invoices"][: 1 + number % 5] * (1 + number % 7)) + f" {number}"
             for number in range(40)]  # fmt: skip
    served = open_encoder(weights)
    ahead = Remembering(open_encoder(weights, in_bulk=True), texts)
    try:
        np.testing.assert_array_equal(ahead.queries(texts), np.concatenate([served.queries([each]) for each in texts]))
    finally:
        ahead.close()
