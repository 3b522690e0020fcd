"""Tools are embedded in the background by a process that ends; an encoder is loaded once somebody has searched."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fakes import bare_server, end_of_searches, search_over

pytest.importorskip("onnxruntime", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")
pytest.importorskip("faiss", reason="the encoders' libraries are not installed")

from bench.learning.known_vectors import encode_vectors
from foretool.retrieval import known_vectors
from foretool.retrieval.corpus import digest
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders import resolve_weights
from foretool.retrieval.encoders import weights as weights_module
from foretool.retrieval.known_tools import KnownTool, KnownTools, sketch_definition, write_line
from foretool.retrieval.known_vectors import KnownVectors
from foretool.retrieval.ranking import Query, Ranking
from foretool.server.catalog import embedding as embedding_module
from foretool.server.catalog import search as search_module
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.embedding import Embedder, install_encoders
from foretool.server.catalog.embedding_worker import EmbeddingWorker, WorkerChoice
from foretool.server.catalog.search import Search
from foretool.server.config.settings import Settings
from foretool.server.protocol.jsonrpc import raw
from foretool.storage.engine import StorageError
from foretool.storage.opening import open_store
from foretool.storage.sqlite.leads import FileLead as Lead
from foretool.storage.store import Store

from tests.server.catalog.test_encoders import provider  # isort: skip
from tiny_model import DIMENSION, write_model  # isort: skip
from tools import tool  # isort: skip


pytestmark = pytest.mark.anyio


def definitions(*names: str) -> list[Any]:
    return [
        raw({"name": name, "description": f"{name} on the web", "inputSchema": {"type": "object"}}) for name in names
    ]


def catalog() -> Catalog:
    found = Catalog([bare_server("git"), bare_server("web")])
    found.replace("git", definitions("open_issue", "report_bug", "close_issue"))
    found.replace("web", definitions("open_page", "find_page"))
    return found


@asynccontextmanager
async def embedding(
    setting: str, tools: Catalog, store: Store, search: Search | None = None
) -> AsyncIterator[Embedder]:
    one = Embedder(Settings(encoder=setting), tools, store, search or search_over(tools))
    try:
        yield one
    finally:
        await one.stop()


def find_in(search: Search, text: str) -> Ranking:
    return search.rank(Query((text,)), lambda tool: True, 50)


def features_of(setting: str, store: Store) -> object:
    tools = catalog()
    search = search_over(tools)
    install_encoders(Settings(encoder=setting), search, store, tools)
    return find_in(search, "open an issue").evidence[0].nearness


async def settled(one: Embedder) -> None:
    async with asyncio.timeout(60):
        one.tick()
        if one._task is not None:
            await one._task


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with open_store(tmp_path / "state" / "foretool.sqlite3") as opened:
        yield opened


async def test_tools_are_embedded_at_once_and_the_encoder_comes_after_a_search(tmp_path: Path, store: Store) -> None:
    tools, folder = catalog(), str(write_model(tmp_path / "tiny"))
    search = search_over(tools)
    async with embedding(folder, tools, store, search) as one:
        await settled(one)
        assert len(store.vectors.known(resolve_weights(folder)[0].key)) == 5
        assert search._encoders is None
        assert "tiny" not in find_in(search, "open an issue").ranked[0].parts
        await settled(one)
        assert "tiny" in find_in(search, "open an issue").ranked[0].parts


async def test_one_proxy_embeds_and_the_others_take_its_vectors(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(write_model(tmp_path / "tiny"))
    key = resolve_weights(folder)[0].key
    with open_store(tmp_path / "other.sqlite3") as other:
        async with embedding(folder, catalog(), other) as first:
            await settled(first)
        made = other.vectors.load(key, other.vectors.known(key))
    monkeypatch.setattr(embedding_module, "EmbeddingWorker", None)  # whoever calls it fails
    monkeypatch.setattr(embedding_module, "WAIT_S", 0.01)
    async with embedding(folder, catalog(), store) as one:
        with Lead(store.path, embedding_module.EMBEDDING) as lead:
            assert lead.take()
            one.tick()
            await one.finish(0.1)
            assert one.is_working
            store.vectors.save(key, made)
        await settled(one)
    assert not one.problem
    assert len(made) == 5


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first search waits for encoders as long as a busy machine takes to open them."""
    monkeypatch.setattr("foretool.server.catalog.search.OPEN_S", 60.0)


@pytest.mark.usefixtures("patient")
async def test_a_first_search_waits_until_a_few_new_tools_are_embedded(tmp_path: Path, store: Store) -> None:
    tools, folder = catalog(), str(write_model(tmp_path / "tiny"))
    search = search_over(tools)
    found: list[Ranking] = []
    async with embedding(folder, tools, store, search) as one, asyncio.timeout(60):
        search.find(Query(("open an issue",)), lambda upstream: True, 50, found.append)
        assert found == []
        await one.finish(60)
        await end_of_searches(search)
    assert "tiny" in found[0].ranked[0].parts


async def test_a_first_search_does_not_wait_until_many_new_tools_are_embedded(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_module, "SOON", 4)
    tools, folder = catalog(), str(write_model(tmp_path / "tiny"))
    search = search_over(tools)
    found: list[Ranking] = []
    async with embedding(folder, tools, store, search) as one:
        search.find(Query(("open an issue",)), lambda upstream: True, 50, found.append)
        await end_of_searches(search)
        assert one.is_working and "tiny" not in found[0].ranked[0].parts
        await settled(one)
        assert "tiny" in find_in(search, "open an issue").ranked[0].parts


@pytest.mark.usefixtures("patient")
async def test_a_search_beside_the_first_one_waits_as_well(tmp_path: Path, store: Store) -> None:
    tools, folder = catalog(), str(write_model(tmp_path / "tiny"))
    search = search_over(tools)
    found: list[Ranking] = []
    async with embedding(folder, tools, store, search), asyncio.timeout(60):
        for task in ("open an issue", "open a page"):
            search.find(Query((task,)), lambda upstream: True, 50, found.append)
        await end_of_searches(search)
    assert ["tiny" in each.ranked[0].parts for each in found] == [True, True]


async def test_while_many_tools_are_embedded_those_that_have_a_vector_are_ranked_by_it(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, folder = catalog(), str(write_model(tmp_path / "tiny"))
    async with embedding(folder, tools, store) as one:
        await settled(one)
    monkeypatch.setattr(embedding_module, "SOON", 1)
    tools.replace("web", definitions("send_mail", "read_mail", "find_mail"))
    search = search_over(tools)
    found: list[Ranking] = []
    async with embedding(folder, tools, store, search) as one, asyncio.timeout(60):
        search.find(Query(("open an issue",)), lambda upstream: True, 50, found.append)
        await end_of_searches(search)
        assert one.is_working and "tiny" in found[0].ranked[0].parts
        assert (search.meaning_in() or 0) > 0
        await settled(one)
        await settled(one)
        assert search.meaning_in() is None


async def test_a_search_waits_for_the_vectors_of_a_server_that_has_just_listed(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, folder = Catalog([bare_server("git"), bare_server("web")]), str(write_model(tmp_path / "tiny"))
    tools.replace("git", definitions(*(f"open_issue_{number}" for number in range(20))))
    search = search_over(tools)
    async with embedding(folder, tools, store, search) as one, asyncio.timeout(60):
        search.find(Query(("open an issue",)), lambda upstream: True, 50, lambda ranking: None)
        await end_of_searches(search)
        await settled(one)
        assert search.meaning_in() is None
        tools.replace("web", definitions("send_mail"))
        search.find(Query(("send a letter",)), lambda upstream: True, 50, lambda ranking: None)
        await end_of_searches(search)
        assert search.meaning_in() is None
        # It says so where it waited in vain.
        monkeypatch.setattr(search_module, "OPEN_S", 0.0)
        tools.replace("web", definitions("send_mail", "read_mail"))
        search.find(Query(("read a letter",)), lambda upstream: True, 50, lambda ranking: None)
        await end_of_searches(search)
        assert (search.meaning_in() or 0) > 0


async def test_tools_are_ranked_by_meaning_while_the_store_refuses_their_vectors(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, folder = catalog(), str(write_model(tmp_path / "tiny"))
    search, key = search_over(tools), resolve_weights(folder)[0].key
    with monkeypatch.context() as full:
        full.setattr(store.vectors, "save", lambda *_: (_ for _ in ()).throw(StorageError("the disk is full")))
        async with embedding(folder, tools, store, search) as one, asyncio.timeout(60):
            found: list[Ranking] = []
            search.find(Query(("open an issue",)), lambda upstream: True, 50, found.append)
            await end_of_searches(search)
            assert "tiny" in found[0].ranked[0].parts and search.meaning_in() is None
            assert not store.vectors.known(key)
            full.undo()
            tools.replace("web", definitions("send_mail"))
            await settled(one)
    assert len(store.vectors.known(key)) == 6, "what was refused is kept with what comes next"


async def test_a_first_search_waits_for_the_tools_of_servers_that_list_meanwhile(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools, folder = Catalog([bare_server("git"), bare_server("web")]), str(write_model(tmp_path / "tiny"))
    tools.replace("git", definitions("open_issue", "report_bug"))
    search = search_over(tools)
    install = Embedder._install_wanted

    async def late(self: Embedder, *arguments: Any) -> None:
        if not tools.of("web"):
            tools.replace("web", definitions("open_page", "find_page"))
        await install(self, *arguments)

    monkeypatch.setattr(Embedder, "_install_wanted", late)
    found: list[Ranking] = []
    async with embedding(folder, tools, store, search), asyncio.timeout(60):
        search.find(Query(("find a page",)), lambda upstream: True, 50, found.append)
        await end_of_searches(search)
        assert search.meaning_in() is None
    assert {"tiny" in each.parts for each in found[0].ranked} == {True}


async def test_one_process_embeds_the_tools_of_servers_that_list_one_after_the_other(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(write_model(tmp_path / "tiny"))
    (weights,) = resolve_weights(folder)
    started = list[WorkerChoice]()
    start = EmbeddingWorker.start

    async def count(choice: WorkerChoice) -> EmbeddingWorker:
        started.append(choice)
        return await start(choice)

    monkeypatch.setattr(EmbeddingWorker, "start", count)
    tools = Catalog([bare_server("git"), bare_server("web")])
    async with embedding(folder, tools, store) as one:
        for server, names in (("git", ("open_issue", "report_bug")), ("web", ("open_page",))):
            tools.replace(server, definitions(*names))
            await settled(one)
        assert len(store.vectors.known(weights.key)) == 3
        assert len(started) == 1
        monkeypatch.setattr(embedding_module, "_STAYS_S", 0.0)
        tools.replace("web", definitions("find_page"))
        await settled(one)
        await settled(one)
        assert one._worker is None, "it ends once nothing is left to do"


async def test_a_well_known_tool_needs_no_embedding(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(write_model(tmp_path / "tiny"))
    (weights,) = resolve_weights(folder)
    forecast = tool("mine", "get_forecast", "Reports how warm and how wet it will be at a place on the next days")
    wishes = ("a coat today?", "rain on Friday in Leeds", "the washing hangs outside", "weather outlook")
    made = KnownTool("get forecast", "weather", sketch_definition(document(forecast)), wishes)
    known = KnownVectors(
        encode_vectors(weights.key, DIMENSION, [(made, [1.0] * DIMENSION)]), KnownTools(write_line(made).encode())
    )
    monkeypatch.setattr(known_vectors, "read_file", lambda: known)
    monkeypatch.setattr(embedding_module, "EmbeddingWorker", None)  # whoever calls it fails
    tools = Catalog([bare_server("mine")])
    tools.replace("mine", [raw(json.loads(forecast.definition))])
    search = search_over(tools)
    search.install_wordings({digest(embedded_text(document(forecast))): wishes})
    async with embedding(folder, tools, store, search) as one:
        await settled(one)
        assert not one.problem and len(store.vectors.known(weights.key)) == 1


@pytest.mark.parametrize("damaged", [None, b"", b'{"encoder":"mini', b'{"encoder":"x","dimension":4}\nrow'])
async def test_where_the_shipped_vectors_are_damaged_every_tool_is_embedded_here(
    damaged: bytes | None, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    file = tmp_path / "vectors.bin"
    if damaged is not None:
        file.write_bytes(damaged)
    monkeypatch.setattr(known_vectors, "FILE", file)
    folder, tools = str(write_model(tmp_path / "tiny")), catalog()
    async with embedding(folder, tools, store) as one:
        await settled(one)
        assert not one.problem and len(store.vectors.known(resolve_weights(folder)[0].key)) == len(tools.tools())
    assert f"{file}: " in caplog.text and "install foretool again" in caplog.text


async def test_only_new_texts_are_embedded(tmp_path: Path, store: Store) -> None:
    tools, folder = catalog(), str(write_model(tmp_path / "tiny"))
    search = search_over(tools)
    find_in(search, "search")
    async with embedding(folder, tools, store, search) as one:
        await settled(one)
        before = store.vectors.known(resolve_weights(folder)[0].key)
        tools.replace("web", definitions("open_page", "find_page", "report_page"))
        await settled(one)
        assert len(store.vectors.known(resolve_weights(folder)[0].key)) == 6
        assert len(store.vectors.known(resolve_weights(folder)[0].key) - before) == 1
        assert find_in(search, "report").evidence[0].nearness is not None
        task = one._task
        one.tick()
        assert one._task is task


@pytest.mark.slow
async def test_without_weights_words_alone_rank_and_nothing_is_tried_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_module, "locate", lambda weights: None)
    async with embedding("auto", catalog(), store) as one:
        await settled(one)
        assert one.problem == "no encoder is installed"
        task = one._task
        one.tick()
        assert one._task is task


async def test_a_model_that_does_not_run_is_said_once(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_model(tmp_path / "broken")
    (folder / "model.onnx").write_bytes(b"not a model")
    tools = catalog()
    search = search_over(tools)
    said = logging.getLogger("foretool.embedding")
    said.addHandler(caplog.handler)  # a test before may have cut our loggers off from the root
    try:
        async with embedding(str(folder), tools, store, search) as one:
            await settled(one)
            await settled(one)
    finally:
        said.removeHandler(caplog.handler)
    assert list(dict.fromkeys(record.getMessage() for record in caplog.records)) == [f"{one.problem}; words alone rank"]
    assert "broken" in one.problem
    assert find_in(search, "issue").ranked


async def test_a_changed_setting_takes_the_encoder_away(tmp_path: Path, store: Store) -> None:
    tools, folder = catalog(), str(write_model(tmp_path / "tiny"))
    search = search_over(tools)
    find_in(search, "search")
    async with embedding(folder, tools, store, search) as one:
        await settled(one)
        assert search._encoders is not None
        one.configure(Settings(encoder=folder))
        assert search._encoders is not None
        one.configure(Settings(encoder="none"))
        assert search._encoders is None


async def test_stopping_ends_the_process(tmp_path: Path, store: Store) -> None:
    async with embedding(str(write_model(tmp_path / "tiny")), catalog(), store) as one:
        one.tick()
        await asyncio.sleep(0)
    assert one._task is not None and one._task.done()


async def test_a_command_ranks_with_the_vectors_on_record(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_module, "AT_ONCE", 4)
    folder = str(write_model(tmp_path / "tiny"))
    assert features_of(folder, store) is None  # no tool is embedded yet
    async with embedding(folder, catalog(), store) as one:
        await settled(one)
    assert features_of(folder, store) is not None
    assert features_of("none", store) is None
    assert features_of("word2vec", store) is None
    tools = catalog()
    search = search_over(tools)
    install_encoders(Settings(encoder=folder), search, store, tools)
    assert json.dumps(find_in(search, "issue").ranked[0].parts)


async def test_an_endpoint_embeds_tools_in_the_process_and_queries_ahead(store: Store) -> None:
    with provider() as server:
        settings = Settings(encoder="tiny", encoder_url=server.url, encoder_key="s3cret")
        tools = catalog()
        search = search_over(tools)
        one = Embedder(settings, tools, store, search)
        find_in(search, "open an issue")
        await settled(one)
        (used,) = one._weights or ()
        assert (one.problem, used.name, len(store.vectors.known(used.key))) == ("", "tiny", 5)
        assert {each["key"] for each in server.asked} == {"Bearer s3cret"}
        (encoder,) = search._slow
        assert "tiny" not in find_in(search, "open an issue").ranked[0].parts
        said: list[Ranking] = []
        search.find(Query(("open an issue",)), lambda tool: True, 50, said.append)
        await end_of_searches(search)
        assert encoder.queries(["open an issue"]).any()
        assert "tiny" in find_in(search, "open an issue").ranked[0].parts
        await one.stop()
        assert "s3cret" not in repr(one._settings)
