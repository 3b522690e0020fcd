"""Results over `result_tokens`: where they are cut, how the rest is read, and what passes whole."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
from fakes import BOTH, Failed, FakeClient, FakeUpstream, Json, proxy_over, said, set_settings, text, tool
from requirements import requirement

from foretool.retrieval.tokens import estimate
from foretool.server.clients import kept_results
from foretool.server.methods.long_results import LEAST_REST, beginning

pytestmark = pytest.mark.anyio

LINES = [f"Line {number} of the report says that {number * number} parts arrived.\n" for number in range(1, 2001)]
LONG = "".join(LINES)
NEXT = re.compile(r'"result": "([0-9a-f]{16})", "from": (\d+)')
PLAIN = {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]}


def reader(result: Json, **more: Any) -> FakeUpstream:
    upstream = FakeUpstream("files", [tool("read", "Reads a file", annotations={"readOnlyHint": True}, **more)])
    upstream.results["read"] = result
    return upstream


async def greet(client: FakeClient, era: str = "legacy") -> FakeClient:
    if era == "modern":
        return client.modern()
    await client.initialize()
    return client


async def read_on(client: FakeClient, result: Json) -> tuple[list[str], list[str]]:
    """The parts that follow a cut result, through `call_tool`, and the lines below them."""
    parts: list[str] = []
    lines = [said(result).splitlines()[-1]]
    while (found := NEXT.search(lines[-1])) is not None:
        arguments = {"result": found[1], "from": int(found[2])}
        result = await client.call_tool("call_tool", {"name": "read_more", "arguments": arguments})
        part, line = (block["text"] for block in result["content"])
        parts.append(part)
        lines.append(line)
    return parts, lines


def test_a_text_is_cut_at_the_best_place_that_is_near() -> None:
    sentence = "The parts arrived on Monday. "
    assert beginning("short", 100) == "short"
    assert beginning(sentence * 50 + "\n\n" + sentence * 50, 400).endswith("\n\n")
    assert beginning((sentence * 3 + "\n") * 50, 200).endswith("\n")
    assert beginning(sentence * 100, 200).endswith(". ")
    assert beginning("word " * 1000, 200).endswith("word ")
    assert 10 < len(beginning("x" * 100_000, 200)) < 100_000
    assert beginning("x", 0) == "x"


@pytest.mark.parametrize("kind", ["plain words here. ", "語", "!?", " ", "\n", "7", "\ud800", "é\u0301"])
def test_the_beginning_of_any_text_is_within_the_budget_and_not_empty(kind: str) -> None:
    given = kind * 5000
    head = beginning(given, 150)
    assert given.startswith(head)
    assert head
    assert estimate(head) <= 165


@requirement("result:cut")
@pytest.mark.parametrize("era", BOTH)
async def test_a_long_result_is_cut_and_its_parts_are_the_whole_text(era: str) -> None:
    async with proxy_over(reader(text(LONG)), result_tokens=2000) as stage:
        client = await greet(stage.client, era)
        result = await client.call_tool("files__read")
        head, line, link = result["content"]
        parts, lines = await read_on(client, result)
        contents = (await client.ask("resources/read", {"uri": link["uri"]}))["contents"]
    assert head["text"].endswith("arrived.\n")
    assert line["text"].count("\n") == 0
    assert head["text"] + "".join(parts) == LONG
    assert lines[-1] == "This was the last part."
    assert all(estimate(part) <= 2200 for part in [head["text"], *parts])
    assert contents == [{"uri": link["uri"], "mimeType": "text/plain", "text": LONG[len(head["text"]) :]}]
    assert link["type"] == "resource_link"


@requirement("result:cut")
async def test_nothing_is_cut_by_default_or_below_the_budget_or_for_a_rest_that_is_shorter_than_its_line() -> None:
    near = LONG[: len(beginning(LONG, 500)) + LEAST_REST - 1]
    for result, tokens in ((text(LONG), 0), (text("short"), 100), (text(near), 500)):
        async with proxy_over(reader(result), **({"result_tokens": tokens} if tokens else {})) as stage:
            await stage.client.initialize()
            assert await stage.client.call_tool("files__read") == result


@requirement("result:per-tool")
async def test_a_server_and_a_pattern_of_its_tools_have_their_own_budget() -> None:
    for entry, is_cut in ((500, True), (0, False), ({"re*": 0, "read": 500}, True), ({"write": 500}, False)):
        upstream = reader(text(LONG))
        upstream.entry = {"result_tokens": entry}
        async with proxy_over(upstream) as stage:
            await stage.client.initialize()
            assert (await stage.client.call_tool("files__read") != text(LONG)) is is_cut
    upstream = reader(text(LONG))
    upstream.entry = {"result_tokens": {"read": 0}}
    async with proxy_over(upstream, result_tokens=500) as stage:
        await stage.client.initialize()
        assert await stage.client.call_tool("files__read") == text(LONG)


@requirement("result:cut")
async def test_errors_are_cut_too_and_other_blocks_stay() -> None:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    embedded = {"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": LONG}}
    blocks = [{"type": "text", "text": LONG}, image, embedded]
    upstream = reader({"content": blocks, "isError": True, "_meta": {"kept": 1}})
    async with proxy_over(upstream, result_tokens=1000) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("files__read")
        parts, _ = await read_on(stage.client, result)
    assert result["isError"] is True
    assert result["_meta"] == {"kept": 1}
    assert [block["type"] for block in result["content"]] == ["text", "image", "text", "resource_link"]
    assert result["content"][0]["text"] + "".join(parts) == f"{LONG}\n\nfile:///a\n{LONG}"


@requirement("result:cut")
async def test_the_text_of_an_embedded_resource_is_cut_inside_it() -> None:
    resource = {"uri": "file:///a", "mimeType": "text/plain", "text": LONG}
    upstream = reader({"content": [{"type": "resource", "resource": resource}]})
    async with proxy_over(upstream, result_tokens=1000) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("files__read")
        parts, _ = await read_on(stage.client, result)
    inner = result["content"][0]["resource"]
    assert inner == {**resource, "text": inner["text"]}
    assert inner["text"] + "".join(parts) == LONG


@requirement("result:structured")
@pytest.mark.parametrize("era", BOTH)
async def test_structured_content_that_repeats_the_text_is_cut_with_it_and_stays_valid(era: str) -> None:
    upstream = reader(text(LONG, structuredContent={"content": LONG}), outputSchema=PLAIN)
    async with proxy_over(upstream, result_tokens=1000) as stage:
        client = await greet(stage.client, era)
        result = await client.call_tool("files__read")
        parts, _ = await read_on(client, result)
    jsonschema.validate(result["structuredContent"], PLAIN)
    head, line = result["content"][0]["text"], result["content"][1]["text"]
    assert result["structuredContent"] == {"content": f"{head}\n\n{line}"}
    assert head + "".join(parts) == LONG


@requirement("result:structured")
@pytest.mark.parametrize(
    ("structured", "schema"),
    [
        ({"content": LONG}, {"type": "object", "properties": {"content": {"type": "string", "pattern": "."}}}),
        ({"content": LONG}, {"type": "object", "properties": {"content": {"type": "string", "minLength": 9}}}),
        ({"content": LONG}, {"type": "object", "properties": {"content": {"$ref": "#/$defs/a"}}}),
        ({"content": LONG}, {"type": "object", "additionalProperties": {"type": "string"}}),
        ({"content": LONG}, {**PLAIN, "allOf": [{"properties": {"content": {"const": LONG}}}]}),
        ({"rows": [LONG]}, {"type": "object"}),
        ({"content": LONG, "copy": LONG}, PLAIN),
        ({"content": LONG, "more": LINES}, PLAIN),
        ([LONG], None),
        ({"content": "other"}, PLAIN),
    ],
)
async def test_structured_content_that_could_become_invalid_passes_whole(structured: Any, schema: Any) -> None:
    more = {"outputSchema": schema} if schema is not None else {}
    result = text(LONG, structuredContent=structured)
    async with proxy_over(reader(result, **more), result_tokens=1000) as stage:
        await stage.client.initialize()
        assert (await stage.client.call_tool("files__read"))["content"] == result["content"]


@requirement("result:cut")
async def test_an_older_client_gets_no_block_that_it_does_not_know() -> None:
    async with proxy_over(reader(text(LONG)), result_tokens=1000) as stage:
        await stage.client.initialize(protocol_version="2025-03-26")
        result = await stage.client.call_tool("files__read")
    assert [block["type"] for block in result["content"]] == ["text", "text"]


@requirement("trust:results:own")
@pytest.mark.parametrize("era", BOTH)
async def test_another_client_cannot_read_the_rest(era: str) -> None:
    async with proxy_over(reader(text(LONG)), result_tokens=1000) as stage:
        first = await greet(stage.client, era)
        result = await first.call_tool("files__read")
        link = result["content"][-1]["uri"]
        found = NEXT.search(said(result))
        assert found is not None
        other = stage.connect().modern("another") if era == "modern" else stage.connect()
        if era == "legacy":
            await other.initialize()
        refused = await other.call_tool("read_more", {"result": found[1]})
        with pytest.raises(Failed, match="Resource not found"):
            await other.ask("resources/read", {"uri": link})
        assert len(await read_on(first, result)) == 2
    assert refused["isError"] is True
    assert "this session has no result" in said(refused)


@requirement("trust:results:own")
async def test_the_rest_ends_with_its_session_and_with_the_rights_to_its_server() -> None:
    async with proxy_over(reader(text(LONG)), result_tokens=1000) as stage:
        client = stage.client
        await client.initialize()
        link = (await client.call_tool("files__read"))["content"][-1]["uri"]
        await client.initialize()  # another conversation
        with pytest.raises(Failed, match="Resource not found"):
            await client.ask("resources/read", {"uri": link})
        link = (await client.call_tool("files__read"))["content"][-1]["uri"]
        assert "contents" in await client.ask("resources/read", {"uri": link})


@requirement("result:cut")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, 'expected "result"'),
        ({"result": 5}, 'expected "result"'),
        ({"result": "0" * 16}, "call its tool again"),
    ],
)
async def test_wrong_questions_are_answered_with_the_way_out(arguments: Json, words: str) -> None:
    async with proxy_over(reader(text(LONG)), result_tokens=1000) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("call_tool", {"name": "read_more", "arguments": arguments})
    assert result["isError"] is True
    assert words in said(result)


@requirement("result:cut")
@pytest.mark.parametrize("start", [-1, 10**9, "5", True, 1.5])
async def test_a_place_outside_the_rest_is_refused(start: Any) -> None:
    async with proxy_over(reader(text(LONG)), result_tokens=1000) as stage:
        await stage.client.initialize()
        found = NEXT.search(said(await stage.client.call_tool("files__read")))
        assert found is not None
        result = await stage.client.call_tool("read_more", {"result": found[1], "from": start})
    assert result["isError"] is True
    assert 'expected "from" between 0 and' in said(result)


@requirement("trust:results:bounded")
async def test_what_has_no_room_passes_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_results, "MOST_SESSION", 50_000)
    async with proxy_over(reader(text(LONG)), result_tokens=1000) as stage:
        await stage.client.initialize()
        assert await stage.client.call_tool("files__read") == text(LONG)


@requirement("result:cut")
async def test_resources_are_declared_where_results_are_cut() -> None:
    for tokens, is_declared in ((0, False), (1000, True)):
        async with proxy_over(reader(text(LONG)), result_tokens=tokens) as stage:
            await stage.client.initialize()
            await stage.client.list_tools()
            greeting = await stage.client.initialize()
            assert ("resources" in greeting["capabilities"]) is is_declared


@requirement("result:cut")
async def test_no_upstream_is_asked_for_a_resource_of_ours_or_has_our_name() -> None:
    upstream = FakeUpstream("files", [tool("read_more")])
    upstream.entry = {"prefix": ""}
    async with proxy_over(upstream, result_tokens=1000) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("read_more", {"result": "a"})
        set_settings(stage, result_tokens=0)
    assert result["isError"] is True
    assert upstream.calls == []
