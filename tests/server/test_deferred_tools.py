"""Tools for models that search by themselves: the shapes of two APIs, what is found, and what may not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream, tool
from library_fakes import Faked, mail
from requirements import requirement

from foretool import DeferredTools
from foretool.storage.opening import open_store

pytestmark = pytest.mark.anyio

SEND = {"type": "object", "properties": {"to": {"type": "string"}}}


def use(query: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": "toolu_1", "name": "search_tools", "input": {"query": query}}


@requirement("library:deferred")
async def test_anthropic_gets_references_to_tools_that_the_request_defines(tmp_path: Path) -> None:
    async with Faked(tmp_path, mail(), FakeUpstream("calc", [tool("add", "Adds numbers")])) as ft:
        deferred = DeferredTools(ft, loaded=["calc__add"])
        tools = deferred.anthropic
        answer = await deferred.answer_anthropic(use("send a letter"))
        called = await ft.call("mail__send_now", {"to": "Ada"})
    search, *others = tools
    assert search["name"] == "search_tools" and "defer_loading" not in search
    assert {each["name"]: each.get("defer_loading") for each in others} == {
        "mail__send_now": True, "mail__read": True, "calc__add": None,
    }  # fmt: skip
    assert next(each for each in others if each["name"] == "mail__send_now") == {
        "name": "mail__send_now", "description": "Sends a letter to somebody", "input_schema": SEND,
        "defer_loading": True,
    }  # fmt: skip
    assert (answer["type"], answer["tool_use_id"]) == ("tool_result", "toolu_1")
    assert answer["content"][0] == {"type": "tool_reference", "tool_name": "mail__send_now"}
    assert called.text == "sent"
    with open_store(tmp_path / "store.sqlite3") as store:
        assert [each.task for each in store.discoveries.recent(10)] == ["send a letter"]


@requirement("library:deferred")
async def test_openai_gets_definitions_of_what_a_search_found(tmp_path: Path) -> None:
    async with Faked(tmp_path, mail()) as ft:
        deferred = DeferredTools(ft, most=1)
        tools = deferred.openai
        call = {
            "type": "tool_search_call",
            "call_id": "c1",
            "execution": "client",
            "arguments": {"query": "send a letter"},
        }
        answer = await deferred.answer_openai(call)
        as_text = await deferred.answer_openai({**call, "arguments": '{"query": "send a letter"}'})
    assert [(each["type"], each["execution"], each["parameters"]["required"]) for each in tools] == [
        ("tool_search", "client", ["query"])
    ]
    function = {"type": "function", "name": "mail__send_now", "description": "Sends a letter to somebody"}
    found = {**function, "parameters": SEND, "strict": False, "defer_loading": True}
    head = {"type": "tool_search_output", "execution": "client", "call_id": "c1", "status": "completed"}
    assert answer == as_text == {**head, "tools": [found]}


@requirement("library:deferred")
@pytest.mark.parametrize("query", ["", None, 7])
async def test_a_search_for_nothing_says_so(tmp_path: Path, query: Any) -> None:
    async with Faked(tmp_path, mail()) as ft:
        deferred = DeferredTools(ft)
        answer = await deferred.answer_anthropic(use(query))
        item = await deferred.answer_openai({"call_id": None, "arguments": query})
    assert isinstance(answer["content"], str | list) and answer["content"]
    assert item["status"] == "completed"


@requirement("library:deferred")
async def test_what_a_profile_leaves_out_is_neither_defined_nor_found(tmp_path: Path) -> None:
    upstream = mail()
    upstream.entry = {"deny": ["send.now"]}
    async with Faked(tmp_path, upstream) as ft:
        deferred = DeferredTools(ft)
        tools = [each["name"] for each in deferred.anthropic]
        answer = await deferred.answer_anthropic(use("send a letter to somebody"))
        found = await deferred.answer_openai({"call_id": "c", "arguments": {"query": "send a letter to somebody"}})
    assert tools == ["search_tools", "mail__read"]
    assert "send_now" not in str(answer) and "send_now" not in str(found["tools"])
