"""What was learned is taken up once a list was given; what is damaged is refused."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, Stage, proxy_over, search_over, tool
from requirements import requirement
from stored_records import connection_of

from foretool.retrieval import methods
from foretool.retrieval.methods import TrainedMethod
from foretool.server.catalog import models
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.models import OpenedModels, open_models, read_models
from foretool.storage.opening import open_store
from foretool.storage.records import Call, ToolId

np = pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learned_fakes import START, Counted  # noqa: E402

pytestmark = pytest.mark.anyio

MODEL = Counted({START: {"calc__add": 1}, "calc__add": {"calc__sub": 3, "END": 1}}).dumps()


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "METHODS", {"dtdr": TrainedMethod("learned_fakes:Counted", "", "history")})


async def taken(stage: Stage) -> None:
    """What housekeeping does each second, and the end of it."""
    stage.app.known.models.tick(has_listed=bool(stage.app.lists.views()))
    assert stage.app.known.models._task is not None
    await stage.app.known.models._task


def calc() -> FakeUpstream:
    return FakeUpstream("calc", tools=[tool("add", "Adds numbers"), tool("sub", "Subtracts numbers")])


@requirement("learn:pick-up")
async def test_a_running_proxy_takes_up_a_model_after_its_first_list() -> None:
    async with proxy_over(calc(), policy="frozen") as stage:
        search = stage.app.search
        stage.store.calls.record([Call("s", 1.0, ToolId("calc__add"), "calc", "direct", True, "ok", 1.0, True, "")], [])
        stage.store.artifacts.add("dtdr", MODEL, {}, promote=True)
        stage.store.artifacts.bump_version()
        models_of = stage.app.known.models
        models_of.tick(has_listed=False)
        assert (search.has_learned, models_of._task) == (False, None)
        client = stage.client
        await client.initialize()
        assert await client.list_tools() == ["call_tool", "call_tool_write", "discover_tools"]
        await taken(stage)
        assert search.predict((), ()) == ({"calc__add": 1.0}, 0.0)
        answer = await client.discover("numbers")
        assert answer["matches"][0]["name"] == "calc__add"
        assert "often comes first" in answer["matches"][0]["why"]
        stage.store.artifacts.roll_back("dtdr")
        await taken(stage)
        assert not search.has_learned


@requirement("learn:list")
async def test_a_list_changes_when_learning_has_run_and_clients_are_told() -> None:
    own = ["call_tool", "call_tool_write", "discover_tools"]
    async with proxy_over(calc(), policy="growing") as stage:
        client = stage.client
        await client.initialize()
        await client.call_tool("calc__sub", {})
        assert await client.list_tools() == ["calc__sub", *own]
        await client.call_tool("calc__add", {})
        artifacts = stage.store.artifacts
        artifacts.add("dtdr", MODEL, {}, promote=True)
        artifacts.bump_version()
        await taken(stage)
        await client.heard("notifications/tools/list_changed")
        assert await client.list_tools() == ["calc__add", "calc__sub", *own]


@requirement("learn:damaged")
def test_a_damaged_model_is_refused_and_the_one_before_it_serves() -> None:
    with open_store(":memory:") as store:
        artifacts = store.artifacts
        first = artifacts.add("dtdr", MODEL, {}, promote=True)
        artifacts.add("dtdr", MODEL[: len(MODEL) // 2], {}, promote=True)  # half-written, its checksum right
        opened = open_models(read_models(store))
        assert opened.learned is not None
        assert [each.id for each in opened.served.values()] == [first.id]
        assert opened.problems[0].startswith("dtdr 2 is refused: dtdr:")
        connection_of(store).execute("UPDATE artifacts SET data = ?", (b"0",))
        assert open_models(read_models(store)) == OpenedModels(
            None, {}, ("dtdr: every copy that is kept is damaged; `foretool learn` makes a new one",)
        )


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "METHODS", {"dtdr": TrainedMethod("nowhere_to_be_found:Model", "", "history")})
    with open_store(":memory:") as store:
        store.artifacts.add("dtdr", MODEL, {}, promote=True)
        opened = open_models(read_models(store))
    assert opened.problems == ("dtdr is not served: nowhere_to_be_found is missing; pip install 'foretool[models]'",)


def test_weights_are_read_with_the_models() -> None:
    with open_store(":memory:") as store:
        store.artifacts.add("dtdr", MODEL, {}, promote=True)
        store.artifacts.add("weights", b'{"encoders":"","factors":{"history":2.0}}', {}, promote=True)
        opened = open_models(read_models(store))
        assert opened.learned is not None
        assert opened.learned.factors_for("") == {"history": 2.0}
        connection_of(store).execute("UPDATE artifacts SET data = ? WHERE kind = 'weights'", (b"{}]",))
        assert models.install_models(search_over(Catalog([])), store) == (
            "weights: every copy that is kept is damaged; `foretool learn` makes a new one",
        )
