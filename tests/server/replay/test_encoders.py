"""Encoders are opened once for all configs that choose the same ones, and embed each text once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_tasks import HOUR, START, write_recorded

from foretool.retrieval.encoders import EncoderError
from foretool.server.catalog import embedding, encoders
from foretool.server.config import loader
from foretool.server.replay.effect import Replays
from foretool.storage.opening import open_store

TASKS = [("add two numbers", ["calc__add"]), ("the phase of the moon", ["sky__moon"])]


class Counting:
    """An encoder that counts what it was asked."""

    name = "counting"

    def __init__(self) -> None:
        self.queried: list[str] = []
        self.read: list[str] = []

    def documents(self, texts: Sequence[str]) -> Any:
        self.read += texts
        return np.eye(8, dtype=np.float32)[[len(text) % 8 for text in texts]]

    def queries(self, texts: Sequence[str]) -> Any:
        self.queried += texts
        return np.eye(8, dtype=np.float32)[[len(text) % 8 for text in texts]]


class Weights:
    key = query_key = name = "counting"


def test_a_text_is_embedded_once_for_both_configs_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recorded(tmp_path, TASKS, encoder="minilm-tools")
    counting = Counting()
    monkeypatch.setattr(embedding, "find_weights", lambda settings: (Weights(),))
    monkeypatch.setattr(encoders, "open_encoder", lambda weights, folder, key: counting)
    config = loader.load(path)
    with open_store(config.storage) as store:
        replays = Replays(config, store, START, START + 9 * HOUR)
        found = replays.now
        replays.play(config)
        assert store.vectors.known("counting") == set()
    assert len(found) == 2
    assert sorted(counting.read) == sorted(set(counting.read)) and len(counting.read) == 6
    assert counting.queried and sorted(counting.queried) == sorted(set(counting.queried))


def test_words_alone_rank_where_no_encoder_can_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(settings: Any) -> Any:
        raise EncoderError("it is not installed")

    path = write_recorded(tmp_path, TASKS, encoder="minilm-tools")
    monkeypatch.setattr(embedding, "find_weights", fail)
    config = loader.load(path)
    with open_store(config.storage) as store:
        found = Replays(config, store, START, START + 9 * HOUR).now
    assert [task.discoveries for task in found] == [1, 1]
