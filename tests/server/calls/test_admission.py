"""What a refused call leaves behind. Whole attacks: tests/attacks/test_policy.py."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import Failed, FakeUpstream, Stage, proxy_over, said, tool
from requirements import requirement

from foretool.server.calls.admission import MOST_ARGUMENTS, MOST_VALUE, describe_call
from foretool.server.protocol.jsonrpc import Raw, raw
from foretool.server.trust.policy import Verdict
from foretool.storage.episodes import read_episodes
from foretool.storage.records import Tool, ToolId

pytestmark = pytest.mark.anyio

WIPE = tool("wipe", "Deletes everything", {"path": {"type": "string"}}, annotations={"destructiveHint": True})
WIPED = Tool(ToolId("disk__wipe"), "disk", "wipe", b"{}", "")
MARKED = Verdict("destructive", "server")


def disk(**entry: Any) -> FakeUpstream:
    return FakeUpstream("disk", [WIPE, tool("read", "Reads a file", annotations={"readOnlyHint": True})], entry=entry)


async def refused_call(stage: Stage, name: str = "disk__wipe") -> str:
    with pytest.raises(Failed) as refused:
        await stage.client.call_tool(name, {"path": "/tmp/x"})
    return refused.value.message


@requirement("trust:policy:on-record")
async def test_a_refusal_is_a_call_that_was_not_sent_and_a_miss_that_names_the_change() -> None:
    upstream = disk(deny=["wipe"])
    async with proxy_over(upstream, record="full") as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        assert await refused_call(stage) == (
            'disk__wipe was not run: "wipe" in "deny" of server \'disk\' refuses it; only the user can change that'
        )
        answer = await stage.client.call_tool("call_tool", {"name": "disk__wipe", "arguments": {"path": "/tmp/x"}})
        first, second = stage.calls()
        (miss,) = stage.misses()
    assert answer["isError"] is True and "only the user" in said(answer)
    assert (first.tool, first.upstream, first.via, first.outcome, first.sent, first.hidden) == (
        "disk__wipe", "disk", "name", "refused", False, True,
    )  # fmt: skip
    assert (first.arguments, second.via, second.outcome) == ('{"path": "/tmp/x"}', "bridge", "refused")
    assert (miss.tool, miss.noticed, miss.cause, miss.recovered, miss.call) == (
        "disk__wipe", "call", "denied", "no", first.id,
    )  # fmt: skip
    assert miss.change == 'remove "wipe" from "deny" of server \'disk\''


@requirement("trust:policy:no-use")
async def test_a_refused_call_counts_as_no_use_and_nothing_is_learned_from_it() -> None:
    async with proxy_over(disk(deny=["wipe"])) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.discover("delete everything")
        await refused_call(stage)
        await stage.client.call_tool("disk__read", {"path": "/tmp/x"})
        usage = {each.tool: each.calls for each in stage.store.calls.usage()}
        events = [each.text for each in stage.store.calls.events(10)]
        needs = [each.text for each in stage.store.discoveries.needs(0.0) if each.kind == "call"]
        firsts = stage.store.discoveries.first_calls(0, 0.0)
        episodes = read_episodes(stage.store, 1e12)
        chat = stage.app.clients.only_client()
        assert chat is not None and chat.session is not None
        assert chat.session.conversations.whole.steps == ["disk__read"]
    assert usage["disk__read"] == 1 and not usage.get("disk__wipe")
    assert events == needs == ["disk__read"]
    assert "disk__wipe" not in firsts.values()
    assert [each.calls for each in episodes] == [("disk__read",)]


def asked(arguments: object, verdict: Verdict = MARKED, tool: Tool = WIPED) -> list[str]:
    given = arguments if isinstance(arguments, Raw) or arguments is None else raw(arguments)
    return describe_call(tool, verdict, given, lambda text: text.replace("s3cret", "[TOKEN]")).splitlines()


@requirement("trust:confirm:shown")
def test_a_question_shows_the_tool_its_server_what_it_may_do_and_each_argument_on_its_line() -> None:
    assert asked({"path": "/tmp/x", "force": True, "note": "é"}) == [
        "Run disk__wipe of server 'disk'? Its server marks it as destructive.",
        "Arguments:",
        '- path: "/tmp/x"',
        "- force: true",
        '- note: "é"',
        "A yes holds for this tool until the session ends.",
    ]


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Verdict("write", "none"), "Its server does not say whether it changes or deletes something."),
        (Verdict("write", "server"), "Its server marks it as one that changes something."),
        (Verdict("read", "config"), "You rated it as read-only."),
    ],
)
def test_a_question_says_who_rated_the_tool(verdict: Verdict, said: str) -> None:
    assert asked({}, verdict)[:2] == [f"Run disk__wipe of server 'disk'? {said}", "It has no arguments."]


@requirement("trust:confirm:shown")
def test_no_argument_poses_as_another_line_hides_a_character_or_shows_a_secret() -> None:
    tags = "".join(chr(0xE0000 + ord(each)) for each in "all")
    lines = asked({"a\nb: 1": "x\nA yes holds\u2028for all", "u\u202e": f"{tags}\u200b\x1b[2J", "key": "s3cret"})
    assert len(lines) == 6
    assert lines[2] == '- a b: 1: "x\\nA yes holds for all"'
    assert "<U+202E>" in lines[3] and "tags: all" in lines[3] and "\x1b" not in "".join(lines)
    assert lines[4] == '- key: "[TOKEN]"'
    shady = Tool(ToolId("disk__wipe"), "di\u202esk\nRun", "wipe", b"{}", "")
    assert len(asked({}, tool=shady)) == 3 and "\u202e" not in asked({}, tool=shady)[0]


@requirement("trust:confirm:shown")
def test_what_is_long_is_cut_and_says_how_long_it_is() -> None:
    lines = asked({"text": "x" * 5000})
    assert len(lines[2]) < MOST_VALUE + 60 and lines[2].endswith("… (5,002 bytes in all)")
    assert len(asked({"text": "x" * 500_000})[2]) < MOST_VALUE + 60
    many = asked({f"a{number}": number for number in range(100)})
    assert len(many) == MOST_ARGUMENTS + 4 and f"- and {100 - MOST_ARGUMENTS} more that are not shown" in many
    assert len(asked({"n" * 9000: 1})[2]) < 80


def test_escapes_do_not_hide_what_is_written() -> None:
    assert asked(Raw(b'{"cmd":"\\u0072m -rf /"}'))[2] == '- cmd: "rm -rf /"'


@pytest.mark.parametrize("arguments", [b"[1,2]", b"null", b'"text"', b'{"deep":' + b"[" * 5000 + b"]" * 5000 + b"}"])
def test_arguments_of_another_kind_are_shown_as_they_are(arguments: bytes) -> None:
    assert len("\n".join(asked(Raw(arguments)))) < 600
