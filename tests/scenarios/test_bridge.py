"""The bridges `call_tool` and `call_tool_write`: each runs what its annotations say, repairs arguments that have one
meaning, and calls no tool of ours."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from fakes import Failed, FakeUpstream, proxy_over, said, tool
from requirements import requirement

from foretool.server.protocol import jsonrpc

pytestmark = pytest.mark.anyio

WIPE = tool("wipe", "Deletes everything", annotations={"destructiveHint": True})
READ = tool("read", "Reads everything", annotations={"readOnlyHint": True})
ADD = tool("add", "Adds", {"a": {"type": "number"}}, annotations={"destructiveHint": False})
ADD["inputSchema"]["required"] = ["a"]


def disk() -> FakeUpstream:
    return FakeUpstream("disk", [WIPE, ADD, READ, tool("plain")])


def through(name: str, arguments: Any = None) -> dict[str, Any]:
    return {"name": name} if arguments is None else {"name": name, "arguments": arguments}


@requirement("bridge:arguments")
@pytest.mark.parametrize("arguments", [{}, {"a": "one"}, None, "text", [1]])
async def test_arguments_that_do_not_fit_come_back_with_the_schema_and_are_not_sent(arguments: Any) -> None:
    upstream = disk()
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("call_tool_write", through("disk__add", arguments))
    assert result["isError"] is True
    assert '"required":["a"]' in said(result).replace(" ", "")
    assert upstream.calls == []


@requirement("bridge:arguments")
async def test_arguments_that_fit_are_passed_on_and_so_is_what_no_schema_can_check() -> None:
    odd = {"name": "odd", "inputSchema": {"type": "object", "properties": {"x": {"type": "no such type"}}}}
    upstream = FakeUpstream("disk", [ADD, odd])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.call_tool("call_tool_write", through("disk__add", {"a": 1, "more": None}))
        await stage.client.call_tool("call_tool_write", through("disk__odd", {"x": 1}))
    assert upstream.calls == [("add", {"a": 1, "more": None}), ("odd", {"x": 1})]


SHOOT = tool(
    "shoot", "Takes a picture", {"scale": {"enum": ["css", "device"], "default": "css"}, "area": {"type": "object"}}
)
SHOOT["inputSchema"] |= {"required": ["scale"], "additionalProperties": False}
FACTS = {"type": "array", "items": {"type": "string"}}
PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "facts": FACTS}}
NOTE = tool("note", "Notes facts of people", {"people": {"type": "array", "items": PERSON}})


@requirement("bridge:repairs")
@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ({"name": "disk__add", "arguments": '{"a": 1}'}, ("add", {"a": 1})),
        ({"name": "disk__add", "arguments": {"a": "1"}}, ("add", {"a": 1})),
        ({"name": "disk__add", "args": {"a": 1}}, ("add", {"a": 1})),
        ({"name": "disk__add", "a": 1}, ("add", {"a": 1})),
        ({"tool_name": "disk__add", "arguments": {"a": 1}}, ("add", {"a": 1})),
        ({"name": "disk__plain", "arguments": None}, ("plain", {})),
        ({"name": "disk__plain", "arguments": ""}, ("plain", {})),
        ({"name": "disk__shoot", "arguments": {"area": '{"x": 1.50}'}}, ("shoot", {"area": {"x": 1.5}})),
        (
            {"name": "disk__note", "people": {"facts": "plays chess"}},
            ("note", {"people": [{"facts": ["plays chess"]}]}),
        ),
    ],
)
async def test_a_call_with_one_meaning_runs_however_it_is_written(written: Any, sent: Any) -> None:
    upstream = FakeUpstream("disk", [ADD, SHOOT, NOTE, "plain"])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("call_tool_write", written)
    assert (result.get("isError", False), upstream.calls) == (False, [sent])


@requirement("bridge:repairs")
@pytest.mark.parametrize("written", ['{"names": ["disk__wipe"]}', {"names": "disk__wipe"}, {"names": '["disk__wipe"]'}])
async def test_a_search_with_one_meaning_is_understood_however_it_is_written(written: Any) -> None:
    async with proxy_over(disk()) as stage:
        await stage.client.initialize()
        for outer in ("discover_tools", "call_tool"):
            asked = written if outer == "discover_tools" else through("discover_tools", written)
            assert "1. disk__wipe" in said(await stage.client.call_tool(outer, asked))


@requirement("call:arguments-verbatim")
@pytest.mark.parametrize("written", [{"a": "1"}, {}, '{"a": 1}', None])
async def test_a_tool_that_is_called_by_its_own_name_gets_what_was_written(written: Any) -> None:
    upstream = disk()
    async with proxy_over(upstream, pin=["disk__add"]) as stage:
        await stage.client.initialize()
        await stage.client.ask("tools/call", {"name": "disk__add", "arguments": written})
    assert upstream.calls == [("add", written)]


@requirement("bridge:forwards")
async def test_a_server_judges_what_it_may_accept_and_is_helped_where_it_refuses() -> None:
    refused = {"content": [{"type": "text", "text": "no"}], "isError": True}
    upstream = FakeUpstream("disk", [ADD, SHOOT])
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize()
        assert said(await client.call_tool("call_tool_write", through("disk__shoot", {}))) == "shoot"
        assert said(await client.call_tool("call_tool_write", through("disk__shoot", {"scale": "x"}))) == "shoot"
        upstream.results["shoot"] = refused
        assert await client.call_tool("call_tool_write", through("disk__shoot", {"scale": "css"})) == refused
        helped = await client.call_tool("call_tool_write", through("disk__shoot", {"scale": "x", "zoom": 2}))
        upstream.scripts["shoot"] = lambda asked: asked.fail(jsonrpc.INVALID_PARAMS, "bad scale")
        with pytest.raises(Failed, match=r'bad scale; the arguments .* "zoom" is not one of its properties'):
            await client.call_tool("call_tool_write", through("disk__shoot", {"zoom": 2}))
    assert [arguments for _, arguments in upstream.calls] == [
        {}, {"scale": "x"}, {"scale": "css"}, {"scale": "x", "zoom": 2}, {"zoom": 2}
    ]  # fmt: skip
    assert [block["text"] for block in helped["content"]] == [
        "no",
        'the arguments of disk__shoot do not fit its schema: "scale": expected one of "css", "device", found "x"; '
        '"zoom" is not one of its properties. inputSchema: {"type":"object","properties":{"scale":{"enum":["css",'
        '"device"],"default":"css"},"area":{"type":"object"}},"required":["scale"]}\n'
        "disk__shoot has now failed 2 times in a row; if it is not made for your task, describe the task to "
        "discover_tools",
    ]


@requirement("call:unseen-schema")
@pytest.mark.parametrize(("settings", "is_defined"), [({}, False), ({"pin": ["disk__add"]}, True)])
async def test_who_calls_a_tool_without_its_definition_by_name_and_wrongly_is_told_its_arguments(
    settings: dict[str, Any], is_defined: bool
) -> None:
    upstream = disk()
    upstream.results["add"] = {"content": [{"type": "text", "text": "no"}], "isError": True}
    async with proxy_over(upstream, **settings) as stage:
        client = stage.client
        await client.initialize()
        await client.ask("tools/list")
        wrong = [each["text"] for each in (await client.call_tool("disk__add", {"b": 1}))["content"]]
        right = [each["text"] for each in (await client.call_tool("disk__add", {"a": 1}))["content"]]
        upstream.scripts["add"] = lambda asked: asked.fail(jsonrpc.INVALID_PARAMS, "a is too large.\n")
        with pytest.raises(Failed) as refused:
            await client.call_tool("disk__add", {"a": 10})
        upstream.scripts["add"] = lambda asked: asked.fail(jsonrpc.INTERNAL_ERROR, "out of order")
        with pytest.raises(Failed) as broken:
            await client.call_tool("disk__add", {"a": 10})
    schema = 'inputSchema: {"type":"object","properties":{"a":{"type":"number"}},"required":["a"]}'
    assert right == ["no"], "the arguments fit, so they are not what is wrong"
    assert broken.value.message == "out of order"
    if is_defined:
        assert (wrong, refused.value.message) == (["no"], "a is too large.\n")
    else:
        told = (
            f'the arguments of disk__add do not fit its schema: "a" is missing (found "b", which is unknown). {schema}'
        )
        assert wrong == ["no", told]
        assert refused.value.message == f"a is too large; its server calls the arguments of disk__add invalid. {schema}"


@requirement("bridge:itself")
async def test_it_refuses_its_own_name_and_a_missing_one() -> None:
    async with proxy_over(disk()) as stage:
        await stage.client.initialize()
        for outer, inner in itertools.product(("call_tool", "call_tool_write"), repeat=2):
            with pytest.raises(Failed) as refused:
                await stage.client.call_tool(outer, through(inner, through("disk__add", {"a": 1})))
            assert refused.value.code == jsonrpc.INVALID_PARAMS
        for arguments in ({}, {"name": 5}, {"name": ""}):
            result = await stage.client.call_tool("call_tool", arguments)
            assert result["isError"] is True
            assert "say which tool to call" in result["content"][0]["text"]


@requirement("bridge:itself")
async def test_arguments_without_a_tool_are_answered_with_the_call_that_takes_them() -> None:
    async with proxy_over(disk(), policy="frozen", list_fill=True) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        for given in ({"a": 1}, {"arguments": {"a": 1}}):
            result = await stage.client.call_tool("call_tool", given)
            assert (
                said(result)
                .replace(": 1", ":1")
                .endswith('which tool to call, such as call_tool_write with {"name":"disk__add","arguments":{"a":1}}')
            )
        result = await stage.client.call_tool("call_tool", {"a": 1, "handle": "x" * 5_000})
        assert said(result).endswith('such as call_tool_write with {"name":"disk__add","arguments":{"a":1}}')
        result = await stage.client.call_tool("call_tool", {"a": "x" * 5_000})
        assert said(result).endswith('such as call_tool_write(name: "disk__add", arguments: {a: number})')
        for unfit in ({"b": 1}, {"a": 1, "b": 1}, {"arguments": [1]}, {"arguments": "a"}):
            result = await stage.client.call_tool("call_tool", unfit)
            assert said(result).endswith("say which tool to call")


@requirement("bridge:itself")
async def test_arguments_without_a_tool_are_taken_for_those_of_the_tools_that_the_model_was_told_of() -> None:
    tables = [tool(f"t{n}", f"Table {n}", {"query": {"type": "string"}}) for n in range(5)]
    for each in tables:
        each["inputSchema"]["required"] = ["query"]
    async with proxy_over(FakeUpstream("db", tables), policy="frozen", list_fill=True) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        for given, meant in (({"query": "a"}, ""), ({"query": "a", "limit": 1}, "")):
            assert said(await stage.client.call_tool("call_tool", given)).endswith("which tool to call" + meant)
        await stage.client.call_tool("discover_tools", {"names": ["db__t3"]})
        call = ', such as call_tool_write with {"name":"db__t3","arguments":{"query":"a"}}'
        for given in ({"query": "a"}, {"query": "a", "limit": 1}):
            result = said(await stage.client.call_tool("call_tool", given)).replace('": ', '":')
            assert result.endswith("which tool to call" + call)
        await stage.client.call_tool("discover_tools", {"names": ["db__t4", "db__t1"]})
        result = said(await stage.client.call_tool("call_tool", {"query": "a"}))
        places = [result.index(f"db__t{n}") for n in (3, 4, 1)]
        assert places == sorted(places), "as it was told of them, the best first"


@requirement("bridge:discover")
async def test_it_passes_discover_tools_on() -> None:
    async with proxy_over(disk()) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool(
            "call_tool", through("discover_tools", {"task": "delete everything", "structured": True})
        )
    assert result["structuredContent"]["matches"][0]["name"] == "disk__wipe"


@requirement("bridge:by-risk")
async def test_call_tool_runs_what_is_read_only_and_names_the_bridge_for_everything_else() -> None:
    upstream = disk()
    async with proxy_over(upstream, pin=["disk__add"]) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        assert said(await client.call_tool("call_tool", through("disk__read", {}))) == "read"
        for name in ("disk__wipe", "disk__add", "disk__plain"):  # listed or not
            refused = await client.call_tool("call_tool", through(name, {"a": 1}))
            assert refused["isError"] is True
            assert said(refused) == (
                f"{name} was not run: call_tool runs read-only tools; call it with call_tool_write, in the same way"
            )
            await client.call_tool("call_tool_write", through(name, {"a": 1}))
        assert said(await client.call_tool("call_tool_write", through("disk__read", {}))) == "read", (
            "the safe direction"
        )
        outcomes = [(call.tool, call.outcome, call.sent) for call in stage.calls() if call.outcome == "refused"]
        causes = {miss.cause for miss in stage.misses()}
    assert [name for name, _ in upstream.calls] == ["read", "wipe", "add", "plain", "read"]
    assert outcomes == [(f"disk__{name}", "refused", False) for name in ("wipe", "add", "plain")]
    assert "denied" not in causes, "the wrong bridge denies nothing"


@requirement("bridge:by-risk")
async def test_an_allowed_tool_runs_through_call_tool_and_so_does_what_the_user_rates_read_only() -> None:
    upstream = disk()
    upstream.entry = {"allow": ["wipe"], "risk": {"plain": "read", "read": "write"}}
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.call_tool("call_tool", through("disk__wipe", {}))
        await stage.client.call_tool("call_tool", through("disk__plain", {}))
        assert (await stage.client.call_tool("call_tool", through("disk__read", {})))["isError"] is True
    assert [name for name, _ in upstream.calls] == ["wipe", "plain"]


@requirement("bridge:one")
async def test_with_one_bridge_call_tool_runs_everything_and_the_other_is_not_listed() -> None:
    upstream = disk()
    async with proxy_over(upstream, bridges="one") as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["call_tool", "discover_tools"]
        await stage.client.call_tool("call_tool", through("disk__wipe", {}))
        found = await stage.client.call_tool("discover_tools", {"task": "delete or read everything"})
        await stage.client.call_tool("call_tool_write", through("disk__wipe", {}))  # of a list from before the change
    assert upstream.calls == [("wipe", {})] * 2
    assert "call_tool_write" not in str(found)


@requirement("bridge:answer")
async def test_each_line_of_an_answer_says_which_bridge_takes_its_match() -> None:
    plain = tool("plain", "Does something")
    for tools, bridges in (
        ([WIPE, READ], "call_tool or call_tool_write"), ([WIPE, READ, plain], "call_tool or call_tool_write"),
        ([WIPE, plain], "call_tool_write"), ([READ], "call_tool"),
    ):  # fmt: skip
        async with proxy_over(FakeUpstream("disk", tools)) as stage:
            await stage.client.initialize()
            names = [f"disk__{each['name']}" for each in tools]
            found = await stage.client.call_tool("discover_tools", {"names": names, "structured": True})
            structured = found["structuredContent"]
        assert structured["advice"] == f"To call one, use its [tool]: {bridges}(name, arguments)."
        for each in structured["matches"]:
            key, bridge = ("read", "call_tool") if each["name"] == "disk__read" else ("write", "call_tool_write")
            assert each[key] is True and f"{each['name']} [{bridge}]" in said(found)


@requirement("bridge:answer")
async def test_a_weak_answer_says_where_what_changes_something_is_called() -> None:
    async with proxy_over(FakeUpstream("disk", [WIPE])) as stage:
        await stage.client.initialize()
        answer = await stage.client.discover(names=["disk__wipe", "garden"])
    assert answer["advice"].startswith("No tool is called 'garden'. To find the tool for a task, describe the task.")
    assert answer["advice"].endswith("[tool]: call_tool_write(name, arguments).")


@requirement("bridge:answer")
async def test_the_name_of_a_server_among_the_names_says_where_and_means_no_tool_that_is_spelled_alike() -> None:
    house = FakeUpstream("house", [tool("disk", "Plays a disk of music"), tool("diskette"), WIPE])
    async with proxy_over(disk(), house, FakeUpstream("files", [tool("read_lines")])) as stage:
        await stage.client.initialize()
        answer = await stage.client.discover(task="delete everything", names=["files", "disk"])
        assert "close to" not in str(answer) and "No tool is called" not in answer["advice"]
        answer = await stage.client.discover(task="wipe everything", names=["house"])
        assert answer["matches"][0]["name"] == "house__wipe"
        answer = await stage.client.discover(names=["files"])
    assert answer["matches"][0]["name"] == "files__read_lines"


@requirement("bridge:honest")
async def test_the_annotations_of_our_own_tools_say_what_they_may_run() -> None:
    async def hints(**entry: Any) -> dict[str, tuple[Any, Any]]:
        upstream = disk()
        upstream.entry = entry
        async with proxy_over(upstream, profiles={"trusting": {"allow": ["@write"]}}) as stage:
            trusting = {each["name"]: each for each in (await stage.connect("trusting").ask("tools/list"))["tools"]}
            listed = {each["name"]: each for each in (await stage.client.ask("tools/list"))["tools"]}
        assert trusting["call_tool"]["annotations"]["readOnlyHint"] is False
        return {
            name: (each["annotations"].get("readOnlyHint"), each["annotations"].get("destructiveHint"))
            for name, each in listed.items()
        }

    writes = (False, True)
    assert await hints() == {"call_tool": (True, None), "call_tool_write": writes, "discover_tools": (True, None)}
    assert (await hints(allow=["wipe"]))["call_tool"] == writes


@requirement("bridge:made-up")
@pytest.mark.parametrize("bridge", ["call_tool", "call_tool_write"])
@pytest.mark.parametrize("name", ["copy_folder_into_archive", "zip-the-folder", "archive a folder", "disk__zipFolder2"])
async def test_a_made_up_name_is_answered_with_what_its_words_find(bridge: str, name: str) -> None:
    upstream = FakeUpstream("disk", [tool("pack", "Copies a folder into a zip archive", {"path": {"type": "string"}})])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool(bridge, through(name))
        found = "\n".join(block["text"] for block in result["content"])
        misses = [(miss.tool, miss.noticed) for miss in stage.misses()]
    assert result["isError"] is True
    assert found.startswith(f"Unknown tool: {name}")
    assert "disk__pack" in found and '"path"' in found
    assert misses == [(name, "unknown_name")]
    assert upstream.calls == []


@requirement("bridge:made-up")
@pytest.mark.parametrize(
    "name", ["disk__disk_blame", "disk__grafana_loki_tempo", "disk__zusammenpacken_ordnername_xyz"]
)
async def test_a_made_up_name_is_not_taken_for_a_task_in_another_language(name: str) -> None:
    upstream = FakeUpstream("disk", [tool("pack", "Copies a folder into a zip archive"), tool("log", "Shows the log")])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        found = str(await stage.client.call_tool("call_tool", through(name)))
    assert "disk__" in found and "in English" not in found


@requirement("bridge:made-up")
async def test_a_made_up_name_finds_nothing_that_the_user_denies() -> None:
    upstream = FakeUpstream("disk", [WIPE, READ], entry={"deny": ["wipe"]})
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("call_tool_write", through("wipe_all_and_delete_everything"))
    assert "disk__wipe" not in str(result)
    assert upstream.calls == []


@requirement("bridge:carries")
async def test_it_carries_progress_and_cancellation() -> None:
    upstream = disk()
    upstream.hold("add")
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize()
        params = {"name": "call_tool_write", "arguments": through("disk__add", {"a": 1})}
        call = client.post("tools/call", params, meta={"progressToken": "mine"})
        asked = await upstream.called("add")
        asked.progress(1, total=2)
        assert await client.heard("notifications/progress") == {"progressToken": "mine", "progress": 1, "total": 2}
        client.notify("notifications/cancelled", {"requestId": call, "reason": "no longer"})
        cancelled = await upstream.asked("notifications/cancelled")
    assert cancelled.params == {"requestId": asked.message.id, "reason": "no longer"}


@pytest.mark.parametrize(
    ("written", "kind"),
    [([1], "array"), ("files", "string"), (5, "number"), (True, "boolean")],
)
async def test_a_bridge_that_gets_no_object_says_what_it_got_in_words_of_json(written: Any, kind: str) -> None:
    async with proxy_over(disk()) as stage:
        await stage.client.initialize()
        with pytest.raises(Failed, match=rf"expected an object, found {kind}$"):
            await stage.client.ask("tools/call", through("call_tool", written))


@requirement("bridge:answer")
async def test_what_a_model_would_only_guess_is_taken_and_not_asked_for() -> None:
    async with proxy_over(disk()) as stage:
        await stage.client.initialize()
        (own,) = [each for each in (await stage.client.ask("tools/list"))["tools"] if each["name"] == "discover_tools"]
        wide = await stage.client.discover("zyzzx quux", sufficiency=0.1)
    assert set(own["inputSchema"]["properties"]) == {"task", "names", "handle"}
    assert wide["servers"]
