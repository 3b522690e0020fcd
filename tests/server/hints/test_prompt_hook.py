"""A recorded prompt is the task before anything is called: a growing list gains what it is likely to need."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import LIST_CHANGED, FakeClient, FakeUpstream, Stage, proxy_over, tool
from requirements import requirement

from foretool.server.setup import client_hooks
from foretool.storage.records import Prompt

pytestmark = pytest.mark.anyio

READ = "files__read"


def files() -> FakeUpstream:
    return FakeUpstream("files", tools=[tool("read", "Reads the text of a file."), tool("zip", "Packs folders.")])


def asked(stage: Stage, text: str, cwd: str = "") -> None:
    stage.store.tasks.add_prompt(Prompt(stage.app.answering.prompts._since + 1.0, text, "chat", cwd))


@requirement("learn:prompt")
async def test_the_list_grows_for_a_prompt_and_what_it_needs_is_no_miss() -> None:
    async with proxy_over(files(), policy="growing") as stage:
        client = stage.client
        await client.initialize()
        assert await client.list_tools() == ["call_tool", "call_tool_write", "discover_tools"]
        asked(stage, "read the text of that file")
        await client.heard(LIST_CHANGED)
        assert READ in await client.list_tools()
        await client.call_tool(READ, {})
        assert stage.misses() == []
        chat = next(iter(stage.app.clients)).session.conversations.whole  # type: ignore[union-attr]
        assert (chat.lines, chat.steps) == (("read the text of that file",), [READ])
        asked(stage, "something else entirely")
        stage.app.answering.prompts.look()
        assert (chat.lines, chat.steps) == (("something else entirely",), [])
    assert client.count(LIST_CHANGED) == 1


@requirement("learn:prompt")
async def test_a_prompt_that_may_be_someone_elses_moves_no_list() -> None:
    async with proxy_over(files(), policy="growing") as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        asked(stage, "read the text of that file", "/somewhere/else")
        stage.app.answering.prompts.look()
        other = stage.connect()
        await other.initialize()
        await other.list_tools()
        asked(stage, "read the text of that file")
        stage.app.answering.prompts.look()
        assert stage.client.count(LIST_CHANGED) == other.count(LIST_CHANGED) == 0


@requirement("learn:prompt")
@pytest.mark.parametrize(("principal", "grows"), [("oauth:ann", False), ("bearer:robot", True)])
async def test_a_prompt_on_this_machine_is_not_that_of_a_person_who_signs_in_elsewhere(
    principal: str, grows: bool
) -> None:
    async with proxy_over(files(), policy="growing") as stage:
        assert stage.client._front is not None
        stage.client._front.close()
        ann = FakeClient(stage.app, transport="http", principal=principal)
        await ann.initialize()
        await ann.list_tools()
        asked(stage, "read the text of that file")
        stage.app.answering.prompts.look()
        if grows:
            await ann.heard(LIST_CHANGED)
        (session,) = next(iter(stage.app.clients)).sessions()
        assert session.conversations.whole.lines == (("read the text of that file",) if grows else ())
    assert ann.count(LIST_CHANGED) == grows


@requirement("hint:asks")
@pytest.mark.parametrize("hook_is", ["in use", "installed", "neither"])
async def test_where_a_hook_is_in_use_the_first_prompt_of_a_conversation_finds_the_encoders_open(
    hook_is: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    if hook_is == "installed":
        settings = tmp_path / ".claude/settings.json"
        settings.parent.mkdir()
        settings.write_text(client_hooks.with_hook(client_hooks.HOOKS["claude-code"], "", "foretool hint"))
    opened: list[str] = []
    async with proxy_over(files(), policy="frozen") as stage:
        stage.app.search.opening.connect(lambda: opened.append("opened"), lambda: None)
        hook = stage.app.answering.prompts
        if hook_is == "in use":
            stage.store.tasks.add_prompt(Prompt(hook._since - 86_400.0, "of yesterday", "chat", ""))
        await stage.client.initialize()
        await hook._prepare()
        assert opened == []  # it would only slow the first list down
        await stage.client.list_tools()
        await hook._prepare()
        await stage.client.until(lambda: bool(opened) or hook_is == "neither")  # the proxy's own watch may be about it
        await hook._prepare()
        assert opened == ([] if hook_is == "neither" else ["opened"])
