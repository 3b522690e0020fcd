"""What a model is told where a search or a call cannot give it what it wants: never to do in vain what it just did."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import FakeUpstream, Stage, SwiftLoop, proxy_over, tool
from requirements import requirement

from foretool.server.discovery.answer_text import say_by_words
from foretool.server.upstreams.registry import PATIENCE_S, Absent

pytestmark = pytest.mark.anyio

DOCTOR = "tell the user, who can run `foretool doctor`"


def text_of(result: dict[str, Any]) -> str:
    text: str = result["content"][0]["text"]
    return text


@requirement("discovery:empty")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_search_that_names_nothing_is_told_what_to_say(era: str) -> None:
    async with proxy_over(FakeUpstream("calc", ["add", "sub"])) as stage:
        client = stage.client if era == "legacy" else stage.client.modern()
        if era == "legacy":
            await client.initialize()
        results = [await client.call_tool("discover_tools", given) for given in ({}, {"task": " \n "}, {"limit": 3})]
        recorded = stage.misses()
    assert [result["isError"] for result in results] == [True] * 3
    assert {text_of(result) for result in results} == {
        'Say what the tool has to do: discover_tools(task="list the files of a folder"), or '
        'discover_tools(names=["server__tool"]) for tools that you know by name.'
    }
    assert recorded == []


READS = {"readOnlyHint": True}
FILES = FakeUpstream("files", [tool("list_folder", "Lists the files of a folder"), tool("read_file", "Reads a file")])


@requirement("discovery:names")
async def test_a_tool_that_is_named_beside_a_task_stands_first_only_where_it_fits_the_task() -> None:
    many = [tool(f"paint_{number}", f"Paints wall {number} of a room") for number in range(30)]
    weather = FakeUpstream("weather", [tool("get_forecast", "Says how the weather will be in a city"), *many])
    async with proxy_over(FILES, weather) as stage:
        await stage.client.initialize()
        # A small model fills in what it has read before.
        told = await stage.client.discover("list the files of a folder", names=["weather__get_forecast"])
        alone = await stage.client.discover(names=["weather__get_forecast"])
        meant = await stage.client.discover("read what a file says", names=["files__read_file"])
        vain = await stage.client.discover("zzyzx quux", names=["weather__get_forecast"])
    names = [match["name"] for match in told["matches"]]
    assert names[0] == "files__list_folder" and "weather__get_forecast" in names
    assert [each["matches"][0]["name"] for each in (alone, meant, vain)] == [
        "weather__get_forecast", "files__read_file", "weather__get_forecast",
    ]  # fmt: skip
    assert alone["confidence"] == meant["confidence"] == "high"


@requirement("discovery:names")
async def test_tools_that_are_looked_up_by_their_names_get_no_confidence() -> None:
    async with proxy_over(FILES) as stage:
        await stage.client.initialize()
        names = ["files__read_file", "files__paint_wall"]
        some = text_of(await stage.client.call_tool("discover_tools", {"names": names}))
        none = text_of(await stage.client.call_tool("discover_tools", {"names": ["nope__x"]}))
        task = text_of(await stage.client.call_tool("discover_tools", {"names": names, "task": "read a file"}))
    unknown = "No tool is called {!r}. To find the tool for a task, describe the task."
    assert some.startswith("Nothing has run yet: ") and unknown.format(names[1]) in some
    assert unknown.format("nope__x") in none and "confidence" not in some + none
    assert task.startswith("confidence: ")


@requirement("bridge:arguments")
async def test_a_call_that_lacks_an_argument_is_told_which_of_its_own_are_unknown() -> None:
    schema = {"type": "object", "properties": {"timezone": {"type": "string"}}, "required": ["timezone"]}
    now = tool("now", "Tells the time", annotations=READS, inputSchema=schema)
    async with proxy_over(FakeUpstream("time", [now])) as stage:
        await stage.client.initialize()
        given = {"name": "time__now", "arguments": {"tz": "Asia/Tokyo"}}
        refused = text_of(await stage.client.call_tool("call_tool", given))
    assert '"timezone" is missing (found "tz", which is unknown)' in refused


OLD = tool("read_file", "Read the complete contents of a file as text. DEPRECATED: Use read_text_file instead.")
NEW = tool("read_text_file", "Returns what stands in something that has characters in it, decoded")
WRITER = tool("write_file", "Create a file with new content. Use with caution as it will overwrite existing files.")


@requirement("discovery:deprecated")
async def test_a_deprecated_tool_never_stands_above_the_one_that_replaces_it() -> None:
    async with proxy_over(FakeUpstream("files", [OLD, NEW, WRITER])) as stage:
        await stage.client.initialize()
        answer = await stage.client.discover("read the complete contents of a file as text")
        named = await stage.client.discover(names=["files__read_file"])
    new, old = [each for each in answer["matches"] if each["name"] != "files__write_file"]
    assert (new["name"], old["name"]) == ("files__read_text_file", "files__read_file")
    assert "replaces a deprecated tool" in new["why"]
    assert old["description"].endswith("as text. DEPRECATED: Use read_text_file instead.")
    assert [each["name"] for each in named["matches"]] == ["files__read_file"]


@requirement("discovery:deprecated")
async def test_a_line_of_an_answer_keeps_what_the_description_warns_of() -> None:
    async with proxy_over(FakeUpstream("files", [OLD, NEW, WRITER])) as stage:
        await stage.client.initialize()
        found = text_of(await stage.client.call_tool("discover_tools", {"task": "create a file with new content"}))
    assert "Create a file with new content. Use with caution as it will overwrite existing files." in found


@requirement("bridge:answer")
async def test_who_has_seen_a_tool_fail_twice_is_told_to_search() -> None:
    weather = FakeUpstream("weather", [tool("get_forecast", annotations=READS), tool("get_alerts", annotations=READS)])
    weather.results["get_forecast"] = {"content": [{"type": "text", "text": "not signed in"}], "isError": True}
    said = "{} has now failed {} times in a row; if it is not made for your task, describe the task to discover_tools"
    async with proxy_over(weather) as stage:
        await stage.client.initialize()

        async def call(name: str) -> list[str]:
            result = await stage.client.call_tool("call_tool", {"name": name, "arguments": {}})
            return [block["text"] for block in result["content"]]

        assert await call("weather__get_forecast") == ["not signed in"]
        assert await call("weather__get_forecast") == ["not signed in", said.format("weather__get_forecast", 2)]
        assert await call("weather__get_forecast") == ["not signed in", said.format("weather__get_forecast", 3)]
        assert await call("weather__get_alerts") == ["get_alerts"]
        assert await call("weather__get_forecast") == ["not signed in"]


@requirement("bridge:answer")
async def test_whose_call_fails_before_the_best_named_tool_was_called_is_told_of_that_one() -> None:
    places = tool("list_places", "List the places that have a weather station", annotations=READS)
    given = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
    forecast = tool("get_forecast", "Get the forecast of a place", inputSchema=given, annotations=READS)
    alerts = tool("get_alerts", "Get the alerts of a storm warning office", annotations=READS)
    weather = FakeUpstream("weather", [places, forecast, alerts])
    for name in ("list_places", "get_alerts"):
        weather.results[name] = {"content": [{"type": "text", "text": "not signed in"}], "isError": True}
    named = 'named for this task, and not called yet: call_tool {"name": "weather__%s", "arguments": {%s}}'
    forecast_named = named % ("get_forecast", '"place": ...')
    async with proxy_over(weather) as stage:
        await stage.client.initialize()
        found = await stage.client.discover("get the forecast of a place")
        assert [each["name"] for each in found["matches"]][:2] == ["weather__get_forecast", "weather__list_places"]

        async def call(name: str, **arguments: str) -> list[str]:
            given = {"name": f"weather__{name}", "arguments": arguments}
            result = await stage.client.call_tool("call_tool", given)
            return [block["text"] for block in result["content"]]

        assert await call("list_places") == ["not signed in", forecast_named]
        # So is who makes a name up.
        refusal, _ = await call("read_the_sky")
        assert refusal.splitlines()[1] == forecast_named
        # Arguments that do not fit are an error to correct, at first.
        (misfit,) = await call("get_forecast")
        assert "do not fit its schema" in misfit and "named for this task" not in misfit
        assert await call("get_forecast", place="Oslo") == ["get_forecast"]
        # What was called is not named again.
        assert await call("get_alerts") == ["not signed in"]
        again = "weather__get_alerts has now failed 2 times in a row"
        search = "if it is not made for your task, describe the task to discover_tools"
        assert await call("get_alerts") == ["not signed in", f"{again}; {search}"]


BAD = {"content": [{"type": "text", "text": "not signed in"}], "isError": True}
OFTEN = "has now failed 2 times in a row"
IF_NOT = f"{OFTEN}; if it is not made for your task, describe the task to discover_tools"


async def advise(stage: Stage, name: str, handle: str = "", **arguments: str) -> str:
    """What a bridged call of a tool is told besides the answer of its server."""
    given = {"name": name, "arguments": arguments, **({"handle": handle} if handle else {})}
    result = await stage.client.call_tool("call_tool_write", given)
    return "\n".join(block["text"] for block in result["content"][1:])


def hub(*failing: str) -> FakeUpstream:
    tools = [
        tool("search_issues", "Search the open issues of a repository", annotations=READS),
        tool("list_issues", "List the open issues of a repository", annotations=READS),
        tool("add_comment", "Comment on an open issue of a repository"),
        tool("delete_issue", "Delete an open issue of a repository"),
        tool("get_weather", "Get the weather of a city", annotations=READS),
    ]
    upstream = FakeUpstream("hub", tools)
    upstream.results.update(dict.fromkeys(failing, BAD))
    return upstream


@requirement("bridge:answer")
async def test_a_failed_call_is_answered_with_what_the_latest_search_named_and_not_one_before_it() -> None:
    async with proxy_over(hub("add_comment")) as stage:
        await stage.client.initialize()
        # Neither a search that led to no call nor a look at a name is what this task is told of.
        await stage.client.discover("get the weather of a city")
        found = await stage.client.discover("comment on an open issue of the repository")
        await stage.client.discover(names=["hub__get_weather"])
        assert found["matches"][0]["name"] == "hub__add_comment"
        assert await advise(stage, "hub__add_comment") == ""
        assert "get_weather" not in await advise(stage, "hub__add_comment")


@requirement("bridge:answer")
async def test_after_a_named_tool_has_worked_the_first_error_of_another_is_one_to_correct() -> None:
    async with proxy_over(hub("add_comment")) as stage:
        await stage.client.initialize()
        found = await stage.client.discover("search the open issues of the repository")
        first, second, *_ = [match["name"] for match in found["matches"]]
        assert (first, second) == ("hub__search_issues", "hub__list_issues")
        await advise(stage, second)
        assert await advise(stage, "hub__add_comment") == ""
        assert "hub__search_issues" in await advise(stage, "hub__add_comment")


@requirement("bridge:answer")
async def test_no_deletion_and_no_change_is_named_after_failed_calls_where_the_task_only_reads() -> None:
    async with proxy_over(hub("search_issues", "list_issues")) as stage:
        await stage.client.initialize()
        found = await stage.client.discover("list the open issues of the repository")
        assert "hub__delete_issue" in [match["name"] for match in found["matches"]]
        for name in ("list_issues", "search_issues"):
            await advise(stage, f"hub__{name}")
            said = await advise(stage, f"hub__{name}")
        assert said == f"hub__search_issues {IF_NOT}"


@requirement("bridge:answer")
async def test_what_was_called_long_ago_or_declined_is_not_said_to_be_uncalled() -> None:
    async with proxy_over(hub("get_weather"), confirm="write") as stage:
        await stage.client.initialize(capabilities={"elicitation": {}})
        found = await stage.client.discover("comment on an open issue of the repository")
        assert found["matches"][0]["name"] == "hub__add_comment"
        given = {"name": "hub__add_comment", "arguments": {}}
        asked = stage.client.post("tools/call", {"name": "call_tool_write", "arguments": given})
        stage.client.respond(await stage.client.asked("elicitation/create"), {"action": "decline"})
        assert (await stage.client.result(asked))["isError"]
        for _ in range(11):
            await advise(stage, "hub__list_issues")
            await advise(stage, "hub__search_issues")
        assert await advise(stage, "hub__get_weather") == ""
        assert await advise(stage, "hub__get_weather") == f"hub__get_weather {IF_NOT}"


@requirement("bridge:answer")
async def test_a_call_that_works_under_its_own_name_ends_a_row_of_failures() -> None:
    upstream = hub()
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        for result in (BAD, None, BAD):
            upstream.results.update({"get_weather": result} if result else {})
            if result is None:
                del upstream.results["get_weather"]
                await stage.client.call_tool("hub__get_weather")
            else:
                assert await advise(stage, "hub__get_weather") == ""


@requirement("bridge:answer")
async def test_a_chat_is_not_told_of_what_was_named_to_another() -> None:
    async with proxy_over(hub("list_issues", "add_comment")) as stage:
        await stage.client.initialize()
        first = await stage.client.discover("get the weather of a city")
        second = await stage.client.discover("comment on an open issue of the repository")
        third = await stage.client.discover("get the weather of a city")
        for at, found in enumerate((first, second, third)):
            said = [await advise(stage, "hub__list_issues", found["handle"]) for _ in range(2)]
            assert ["get_weather" in each for each in said] == [at != 1] * 2
            assert ["add_comment" in each for each in said] == [at == 1] * 2


@requirement("bridge:answer")
async def test_no_tool_is_named_in_place_of_itself() -> None:
    given = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    async with proxy_over(FakeUpstream("hub", [tool("label_issue", "Label an issue", inputSchema=given)])) as stage:
        await stage.client.initialize()
        await stage.client.discover("label an issue")
        call = {"name": "hub__label_issue", "arguments": {}}
        _, said = [text_of(await stage.client.call_tool("call_tool_write", call)) for _ in range(2)]
        assert said.splitlines()[-1] == f"hub__label_issue {IF_NOT}"


@requirement("discovery:prepared")
@pytest.mark.parametrize("task", ["quux", "add two numbers"])
async def test_before_the_tools_are_embedded_an_answer_says_so_and_is_no_verdict(task: str) -> None:
    async with proxy_over(FakeUpstream("calc", [tool("add", "Adds two numbers"), "paint"])) as stage:
        await stage.client.initialize()
        stage.app.search.opening.connect(lambda: None, lambda: 7.0)
        before = await stage.client.discover(task)
        stage.app.search.opening.connect(lambda: None, lambda: None)
        after = await stage.client.discover(task)
        changes = [miss.change for miss in stage.misses()]
    assert before["note"] == say_by_words(7.0) and before["confidence"] != "none"
    assert "note" not in after
    if task == "quux":
        assert after["confidence"] == "none"
        assert "search by meaning was still being prepared" in changes[0]
        assert not any("being prepared" in change for change in changes[1:])


@requirement("discovery:absent")
async def test_a_dead_server_is_named_once_a_session() -> None:
    dead = FakeUpstream("chatty", ["say"], missing="command 'chatty' was not found")
    async with proxy_over(FakeUpstream("calc", ["add", "sub"]), dead) as stage:
        await stage.client.initialize()
        answers = [await stage.client.discover(task) for task in ("quux", "quux quux", "something chatty")]
        other = stage.connect()
        await other.initialize()
        answers.append(await other.discover("quux"))
    said = f"Server chatty is down, so its tools are missing here: {DOCTOR}."
    assert [answer.get("absent") for answer in answers] == [said, None, said, said]


@requirement("discovery:absent")
async def test_a_server_that_never_becomes_ready_is_not_said_to_be_starting_for_ever() -> None:
    assert isinstance(asyncio.get_running_loop(), SwiftLoop)
    stuck, failing = FakeUpstream("stuck", ["say"], gate=asyncio.Event()), FakeUpstream("failing", missing="no")
    async with proxy_over(FakeUpstream("calc", ["add"]), stuck, failing, cold_search_s=0.1, cold_list_s=0.1) as stage:
        await stage.client.initialize()
        upstreams, profile = stage.app.upstreams, stage.app.config.profiles[""]
        first = (await stage.client.discover("quux"))["absent"]
        upstreams["stuck"].since -= PATIENCE_S + 1
        later = await stage.client.discover("quux stuck")
        while failing.starts < 2:
            await asyncio.sleep(0.1)  # of the loop's own time
        assert upstreams.absent(profile) == Absent(down=("stuck", "failing"))
    assert "Server stuck is starting" in first and "Server failing is down" in first
    assert later["absent"] == f"Server stuck is down, so its tools are missing here: {DOCTOR}."


@requirement("death:not-sent")
@pytest.mark.parametrize(
    ("reason", "way_out"),
    [
        ("command 'docker' was not found", f"calling again does not help: {DOCTOR}"),
        ("exited with code 1", f"the server has not worked yet: {DOCTOR}"),
    ],
)
async def test_no_call_is_repeated_for_a_server_that_cannot_start(reason: str, way_out: str) -> None:
    dead = FakeUpstream("github", ["say"], missing=reason)
    async with proxy_over(FakeUpstream("calc", ["add"]), dead) as stage:
        await stage.client.initialize()
        result = await stage.client.call_tool("call_tool_write", {"name": "github__say", "arguments": {}})
    assert result["isError"] is True
    assert text_of(result).endswith(f"it had not been sent, and {way_out}")
    assert "call again" not in text_of(result)


@requirement("death:not-sent")
@pytest.mark.parametrize(
    ("reason", "way_out"),
    [
        ("command 'calc' was not found", f"it had not been sent, and calling again does not help: {DOCTOR}"),
        ("exited with code 1", "it had not been sent: call again (the next call reconnects)"),
    ],
)
async def test_a_call_is_repeated_for_a_server_that_has_worked(reason: str, way_out: str) -> None:
    upstream = FakeUpstream("calc", ["add"])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.call_tool("calc__add", {})
        upstream.missing = reason
        upstream.die()
        result = await stage.client.call_tool("calc__add", {})
    assert text_of(result).endswith(way_out)


async def test_a_tool_that_deletes_something_else_is_no_sure_answer() -> None:
    sheets = FakeUpstream(
        "excel", [tool("delete_worksheet", "Delete worksheet from workbook."), tool("chart", "Draws.")]
    )
    async with proxy_over(sheets) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        sure = await stage.client.discover("delete the worksheet of March")
        other = await stage.client.discover("delete an old file")
    assert sure["confidence"] in ("high", "medium")
    assert (other["matches"] or other["nearest"])[0]["name"] == "excel__delete_worksheet"
    assert other["confidence"] in ("low", "none")
