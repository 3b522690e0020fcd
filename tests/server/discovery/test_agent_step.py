"""One step: tools and instructions under one budget, pins by domain, widening, what is remembered and recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream, Stage, config_of, proxy_over, tool
from msgspec.structs import replace
from requirements import requirement

from foretool.retrieval.itr import NOTE, OVERLAY
from foretool.server.clients.session import Session
from foretool.server.config.loader import Profile
from foretool.server.discovery.agent_step import AgentSteps, StepPlan
from foretool.storage.records import ToolId

pytestmark = pytest.mark.anyio

MAIL = FakeUpstream(
    "mail",
    [
        tool("send", "Sends a letter to somebody", {"to": {"type": "string"}}),
        tool("search", "Finds letters in the mailbox"),
        tool("archive", "Moves a letter to the archive"),
    ],
)
PAY = FakeUpstream("pay", [tool("refund", "Gives money back"), tool("audit", "Keeps the books")])


def plan(stage: Stage, task: str, budget: int = 2000, history: tuple[str, ...] = ()) -> StepPlan:
    found: list[StepPlan] = []
    (client,) = stage.app.clients
    steps(stage).plan(stage.app.answering.steps.query(task, history), client, budget, found.append)
    return found[0]


def steps(stage: Stage) -> AgentSteps:
    return stage.app.answering.steps


def everyone(stage: Stage) -> Profile:
    return stage.app.config.profiles[""]


def names(of: StepPlan) -> list[str]:
    return [each.tool for each in of.tools]


def session(stage: Stage) -> Session:
    (client,) = stage.app.clients
    (only,) = client.sessions()
    return only


async def ready(stage: Stage) -> None:
    await stage.client.list_tools()
    await stage.app.search.index(60.0)


@requirement("step:budget")
async def test_a_step_has_tools_and_instructions_within_one_budget(tmp_path: Path) -> None:
    (tmp_path / "letters.md").write_text("Send a letter in plain words.")
    settings: dict[str, Any] = {"instructions": ["*.md"]}
    async with proxy_over(MAIL, PAY, **settings) as stage:
        stage.app.live.now = replace(config_of(MAIL, PAY, **settings), path=tmp_path / "mcp.json")
        await ready(stage)
        found = plan(stage, "send a letter")
        small = plan(stage, "send a letter", 302)
    assert names(found)[0] == "mail__send"
    cited = '<instructions source="file letters.md">\nSend a letter in plain words.\n</instructions>'
    assert found.prompt == f"{OVERLAY}\n\n{cited}\n\n{NOTE}"
    assert found.tokens <= 2000 and found.fallback == "none"
    assert (names(small), small.tokens <= 302) == (["mail__send"], True)


@requirement("step:instructions-share")
async def test_instructions_that_match_do_not_crowd_out_the_tools_that_match(tmp_path: Path) -> None:
    about = " ".join(f"Letters of kind {number} are kept in the archive." for number in range(48))
    for file in range(4):
        (tmp_path / f"letters{file}.md").write_text(f"# Letters {file}\n\nSend a letter {file}. {about}")
    properties = {name: {"type": "string", "description": f"{name} of the letter"} for name in ("to", "about", "text")}
    post = FakeUpstream("post", [tool(f"letter{each}", f"Sends letter {each}", properties) for each in range(10)])
    others = FakeUpstream("others", [tool(f"other{number}", f"Computes thing {number}") for number in range(300)])
    settings: dict[str, Any] = {"instructions": ["*.md"]}
    async with proxy_over(post, others, **settings) as stage:
        stage.app.live.now = replace(config_of(post, others, **settings), path=tmp_path / "mcp.json")
        await ready(stage)
        found = plan(stage, "sends letter")
        wider = steps(stage).widen(found, 0.2, everyone(stage))
    assert (len(names(found)) >= 8, found.tokens <= 2000) == (True, True)
    assert found.fragments[0].source == "file letters0.md"
    assert [each.id for each in wider.fragments] == [each.id for each in found.fragments]


@requirement("itr:sufficiency")
async def test_widening_brings_more_tools_under_twice_the_budget_then_the_names_of_the_others() -> None:
    many = FakeUpstream("many", [tool(f"letter{number}", f"Sends letter {number}") for number in range(30)])
    others = FakeUpstream("others", [tool(f"other{number}", f"Computes thing {number}") for number in range(300)])
    async with proxy_over(many, others) as stage:
        await ready(stage)
        first = plan(stage, "sends letter")
        wider = steps(stage).widen(first, 0.2, stage.app.config.profiles[""])
        widest = steps(stage).widen(wider, 0.2, stage.app.config.profiles[""])
        last = steps(stage).widen(widest, 0.2, stage.app.config.profiles[""])
    assert [len(each.tools) for each in (first, wider, widest, last)] == [12, 24, 30, 30]
    assert set(names(first)) <= set(names(wider))
    assert [each.fallback for each in (first, wider, widest, last)] == ["none", "expand", "expand", "discover"]
    assert (wider.budget, wider.sufficiency) == (4000, 0.2)


@requirement("step:nothing")
async def test_where_nothing_fits_the_names_of_all_tools_are_in_the_prompt() -> None:
    async with proxy_over(MAIL, PAY) as stage:
        await ready(stage)
        found = plan(stage, "weather tomorrow")
    assert (names(found), found.level, found.fallback) == ([], "none", "discover")
    listed = "mail__archive, mail__search, mail__send, pay__audit, pay__refund"
    assert found.prompt.endswith(f"Other tools: {listed}.")


@requirement("itr:sufficiency")
async def test_matches_that_were_chance_are_shown_to_who_finds_nothing_sufficient() -> None:
    others = FakeUpstream("others", [tool(f"other{number}", f"Computes thing {number}") for number in range(300)])
    async with proxy_over(others) as stage:
        await ready(stage)
        found = plan(stage, "thing")
        wider = steps(stage).widen(found, 0.1, everyone(stage))
    assert (names(found), found.level, found.fallback) == ([], "none", "discover")
    assert (len(wider.tools), wider.fallback) == (12, "expand")


@requirement("itr:pins")
async def test_a_domain_pins_its_tools_and_only_there() -> None:
    domains = {"money": {"examples": ["refund a charge", "give money back to a customer"], "pin": ["pay__a*"]}}
    async with proxy_over(MAIL, PAY, domains=domains) as stage:
        await ready(stage)
        money = plan(stage, "refund the charge of a customer and give the money back")
        letter = plan(stage, "send a letter")
    assert names(money)[0] == "pay__audit" and "pay__refund" in names(money)
    assert "pay__audit" not in names(letter)


@requirement("itr:cache")
async def test_the_same_task_is_remembered_until_the_tools_change() -> None:
    mail = FakeUpstream("mail", MAIL.tools)
    async with proxy_over(mail) as stage:
        await ready(stage)
        first, again = plan(stage, "send a letter"), plan(stage, " send a letter\n")
        assert (first.cached, again.cached, names(again)) == (False, True, names(first))
        assert plan(stage, "send a letter", history=("mail__search",)).cached is False
        mail.change("only")
        await stage.client.heard("notifications/tools/list_changed")
        assert plan(stage, "send a letter").cached is False


@requirement("itr:cache")
async def test_a_task_of_the_same_words_in_another_order_is_another_task() -> None:
    async with proxy_over(MAIL) as stage:
        await ready(stage)
        plan(stage, "archive alpha and send beta")
        other = plan(stage, "send alpha and archive beta")
    assert (other.cached, other.task) == (False, "send alpha and archive beta")


async def test_a_giant_tool_is_trimmed_and_says_how_to_see_all_of_it() -> None:
    properties = {f"field{number}": {"type": "string", "description": "long " * 40} for number in range(30)}
    giant = FakeUpstream("giant", [tool("write", "Writes a record. It has fields.", properties)])
    async with proxy_over(giant) as stage:
        await ready(stage)
        (shown,) = plan(stage, "write a record").tools
        whole = stage.app.catalog.tokens(ToolId("giant__write"))
    assert whole > 1000 > shown.tokens
    assert b'Writes a record. (shortened; discover_tools(names=[\\"giant__write\\"]) has all of it)' in bytes(
        shown.definition
    )


@requirement("step:record")
async def test_a_step_is_on_record_and_a_call_of_what_it_lacks_is_a_miss() -> None:
    async with proxy_over(MAIL, PAY) as stage:
        await ready(stage)
        found = plan(stage, "send a letter")
        steps(stage).record(session(stage), found)
        steps(stage).show(session(stage), found, stage.app.config.profiles[""])
        await stage.client.call_tool("mail__send", {"to": "Ada"})
        await stage.client.call_tool("pay__refund")
        (discovery,) = stage.store.discoveries.recent(-1)
        (step,) = stage.store.tasks.steps()
        sent, refunded = stage.calls()
        (miss,) = stage.misses()
        exposure = stage.store.sessions.exposures(discovery.session)[-1]
    assert (discovery.task, [match.tool for match in discovery.matches]) == ("send a letter", names(found))
    assert (step.task, list(step.tools), step.fallback, step.tokens) == (
        "send a letter", names(found), "none", found.tokens,
    )  # fmt: skip
    assert (sent.hidden, sent.discovery, refunded.hidden) == (False, discovery.id, True)
    assert (miss.tool, miss.cause, miss.change) == (
        "pay__refund", "rank", "widen the step, pin pay__refund, or say more of the task",
    )  # fmt: skip
    assert set(exposure.tools) == {*names(found), "discover_tools"}


@requirement("step:record")
async def test_without_recording_no_words_of_a_step_are_kept() -> None:
    async with proxy_over(MAIL, record="off") as stage:
        await ready(stage)
        steps(stage).record(session(stage), plan(stage, "send a letter"))
        assert [each.task for each in (*stage.store.tasks.steps(), *stage.store.discoveries.recent(-1))] == ["", ""]


# The prompt


@requirement("step:prompt")
async def test_the_prompt_assemble_step_gives_the_step_as_one_text() -> None:
    async with proxy_over(MAIL, PAY) as stage:
        await ready(stage)
        listed = await stage.client.ask("prompts/list")
        given = await stage.client.ask("prompts/get", {"name": "assemble_step", "arguments": {"task": "send a letter"}})
        (discovery,) = stage.store.discoveries.recent(-1)
    assert [each["name"] for each in listed["prompts"]] == ["assemble_step"]
    (message,) = given["messages"]
    text = message["content"]["text"]
    assert message["role"] == "user" and text.startswith(OVERLAY) and text.endswith(f"{NOTE}\n\nsend a letter")
    assert '{"name": "mail__send", "description": "Sends a letter to somebody"' in text
    assert discovery.task == "send a letter"


@requirement("step:prompt")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "assemble_step: task is missing; say what to do, one need per line"),
        ({"task": "x", "budget": "much"}, "assemble_step: budget: expected a number of tokens, found 'much'"),
    ],
)
async def test_arguments_that_make_no_step_are_refused(arguments: dict[str, str], problem: str) -> None:
    from fakes import Failed

    async with proxy_over(MAIL) as stage:
        await ready(stage)
        with pytest.raises(Failed) as refused:
            await stage.client.ask("prompts/get", {"name": "assemble_step", "arguments": arguments})
    assert refused.value.message == problem


@requirement("step:prompt")
async def test_who_sees_everything_gets_no_prompt_of_ours() -> None:
    async with proxy_over(MAIL, policy="full") as stage:
        await ready(stage)
        assert await stage.client.ask("prompts/list") == {"prompts": []}
