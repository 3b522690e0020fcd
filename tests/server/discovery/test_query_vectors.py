"""The vectors of searches on record are kept, and those of texts that nobody may keep are not."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from callers import on_the_real_clock
from fakes import search_over

pytest.importorskip("onnxruntime", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
pytest.importorskip("faiss", reason="the encoders' libraries are not installed")

import numpy as np

from foretool.retrieval.corpus import digest, digest_query
from foretool.retrieval.encoders import resolve_weights
from foretool.server.catalog.embedding import Embedder, open_encoders
from foretool.server.catalog.search import Search
from foretool.server.commands.forget import _digests_of
from foretool.server.config.settings import Settings
from foretool.server.discovery.query_vectors import QueryVectors
from foretool.storage.engine import StorageError
from foretool.storage.opening import open_store
from foretool.storage.records import Discovery, Prompt
from foretool.storage.store import Store

from tests.server.catalog.test_embedding import catalog, find_in, settled  # isort: skip
from tiny_model import write_model  # isort: skip

pytestmark = [pytest.mark.anyio, on_the_real_clock]

TASK = "open an issue about the crash"
LONG = (
    "First find the page of the project on the web, and then read what it says of the crash that people see at the"
    " start. After that open an issue with the words of the page, and then close the older issue which says the very"
    " same thing as it does."
)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_store(tmp_path / "state" / "foretool.sqlite3") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "tiny"))


@asynccontextmanager
async def keeping(folder: str, store: Store) -> AsyncIterator[tuple[QueryVectors, Search, Embedder]]:
    """What keeps vectors, with a search that ranks by an encoder."""
    tools = catalog()
    search = search_over(tools)
    embedder = Embedder(Settings(encoder=folder), tools, store, search)
    try:
        await settled(embedder)
        search.want_encoders()
        await settled(embedder)
        assert search.encoders is not None
        yield QueryVectors(store, search, embedder, time.time), search, embedder
    finally:
        await embedder.stop()


def record(store: Store, task: str) -> None:
    store.discoveries.add(Discovery("s", time.time(), task, (), None, "high", (), 400, 2.0))


def kept(folder: str, store: Store) -> set[bytes]:
    return store.vectors.known(resolve_weights(folder)[0].query_key)


async def test_a_recorded_search_leaves_the_vectors_of_all_its_texts(folder: str, store: Store) -> None:
    async with keeping(folder, store) as (vectors, search, _):
        find_in(search, LONG)
        record(store, LONG)
        await vectors.tick()
    assert len(kept(folder, store)) > 2
    assert kept(folder, store) <= _digests_of([LONG])
    [weights] = resolve_weights(folder)
    [encoder] = open_encoders([weights], "")
    [row] = store.vectors.load(weights.query_key, {digest(LONG)}).values()
    assert np.frombuffer(row, np.float32) == pytest.approx(encoder.queries([LONG])[0])


async def test_a_prompt_on_record_leaves_its_vector(folder: str, store: Store) -> None:
    async with keeping(folder, store) as (vectors, search, _):
        find_in(search, TASK)
        store.tasks.add_prompt(Prompt(time.time(), f"{TASK}\n"))
        await vectors.tick()
    assert kept(folder, store) == {digest(TASK)}


async def test_a_text_that_is_not_on_record_leaves_none(folder: str, store: Store) -> None:
    async with keeping(folder, store) as (vectors, search, _):
        find_in(search, TASK)
        record(store, "something else")
        for _ in range(5):
            await vectors.tick()
        record(store, TASK)
        await vectors.tick()
        assert not kept(folder, store)


async def test_a_secret_that_is_recorded_without_its_value_leaves_none(folder: str, store: Store) -> None:
    task = "open an issue with the token ghp_" + "a1B2" * 9
    async with keeping(folder, store) as (vectors, search, _):
        find_in(search, task)
        record(store, task)
        assert "ghp_a1" not in store.discoveries.recent(1)[0].task
        await vectors.tick()
        assert not kept(folder, store)


async def test_a_record_that_comes_late_is_waited_for(folder: str, store: Store) -> None:
    async with keeping(folder, store) as (vectors, search, _):
        find_in(search, TASK)
        await vectors.tick()
        record(store, TASK)
        await vectors.tick()
        assert kept(folder, store) == {digest(TASK)}


async def test_vectors_of_other_encoders_are_not_taken_for_those_in_use(folder: str, store: Store) -> None:
    async with keeping(folder, store) as (vectors, search, embedder):
        find_in(search, TASK)
        record(store, TASK)
        embedder.configure(Settings(encoder="none"))
        await vectors.tick()
        assert not kept(folder, store)


async def test_a_store_that_refuses_gets_them_later(folder: str, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise StorageError("full", temporary=True)

    async with keeping(folder, store) as (vectors, search, _):
        find_in(search, TASK)
        record(store, TASK)
        with monkeypatch.context() as patched:
            patched.setattr(type(store.vectors), "save", refuse)
            with pytest.raises(StorageError):
                await vectors.tick()
        await vectors.tick()
        assert kept(folder, store) == {digest(TASK)}


async def test_the_vector_of_a_chinese_search_stands_apart_from_one_of_before_it_was_read_in_english(
    folder: str, store: Store
) -> None:
    task = "打开 issue"
    async with keeping(folder, store) as (vectors, search, _):
        find_in(search, task)
        record(store, task)
        await vectors.tick()
    assert kept(folder, store) == {digest_query(task)} != {digest(task)}
    assert _digests_of([task]) == {digest_query(task), digest(task)}, "and `foretool forget` deletes both"
