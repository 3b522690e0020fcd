"""A command that a tool serves is a miss with the cause `bypass`, and nothing else of a report is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fakes import FakeUpstream, Stage, proxy_over, tool
from requirements import requirement

from foretool.server.hints.shell_answer import read_report
from foretool.server.local.server import Hello
from foretool.storage.records import Miss

pytestmark = pytest.mark.anyio

PULLS = "github__list_pull_requests"
GH: list[Any] = [["gh", "pr", "list"]]


def github() -> FakeUpstream:
    texts = {
        "list_pull_requests": "List pull requests of a GitHub repository.",
        "get_pull_request": "Get one pull request of a GitHub repository.",
        "create_issue": "Create an issue in a GitHub repository.",
        "search_code": "Search code in GitHub repositories.",
    }
    return FakeUpstream("github", tools=[tool(name, text) for name, text in texts.items()])


def report(stage: Stage, commands: Any = GH, profile: str = "", folder: str = "", client: str = "") -> list[Miss]:
    """What is on record after a hook has reported these commands."""
    question = {"commands": commands, "cwd": folder or str(Path.cwd()), "client": client}
    stage.app.answering.shell_reports._answer(Hello(profile, "", {}), question, lambda answer: None)
    return [each for each in stage.store.calls.misses() if each.cause == "bypass"]


@requirement("shell:bypass")
@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_command_that_a_tool_serves_is_missed_once_for_each_list(is_listed: bool) -> None:
    more: dict[str, Any] = {"policy": "full"} if is_listed else {"policy": "frozen", "list_tokens": 0}
    async with proxy_over(github(), **more) as stage:
        listed = await stage.client.list_tools()
        assert (PULLS in listed) is is_listed
        for _ in range(50):
            (miss,) = report(stage)
        assert (miss.tool, miss.noticed, miss.query) == (PULLS, "shell", "gh pr list")
        assert (miss.recovered, miss.turns, miss.tokens) == ("shell", 0, 0)
        assert miss.change.startswith("say in the description" if is_listed else f"pin {PULLS}")
        assert 0 < miss.rank <= miss.of
        # The use that lists go by is that of tools, and no command used one.
        assert [each for each in stage.store.calls.usage() if each.tool == PULLS] == []
        # A call of the tool is what it would have been.
        called = {"name": PULLS, "arguments": {}}
        await stage.client.call_tool(*((PULLS, {}) if is_listed else ("call_tool_write", called)))
        assert len([each for each in stage.store.calls.misses() if each.cause != "bypass"]) == (not is_listed)


@requirement("shell:bypass")
@pytest.mark.parametrize(
    "shape", [["gh", "release", "list"], ["gh", "issue", "list"], ["git", "push"], ["glab", "mr", "list"], ["psql"]]
)
async def test_a_command_that_no_tool_serves_is_none(shape: list[str]) -> None:
    async with proxy_over(github()) as stage:
        await stage.client.list_tools()
        assert report(stage, [shape]) == []


@requirement("shell:bypass")
async def test_what_the_profile_or_a_rule_leaves_out_is_no_bypass() -> None:
    async with proxy_over(github(), profiles={"none": {"servers": ["other*"]}}) as stage:
        await stage.client.list_tools()
        assert report(stage, profile="none") == []
    denying = FakeUpstream("github", tools=github().tools, entry={"deny": ["list_*"]})
    async with proxy_over(denying) as stage:
        await stage.client.list_tools()
        assert report(stage) == []


@requirement("shell:bypass")
async def test_a_command_belongs_to_the_client_of_the_folder_or_of_one_above_it() -> None:
    async with proxy_over(github()) as stage:
        await stage.client.list_tools()
        assert report(stage, folder="/nowhere/else") == []
        assert len(report(stage, folder=str(Path.cwd() / "src" / "deep"), client="claude-code")) == 1


@requirement("trust:shell")
@pytest.mark.parametrize(
    "commands",
    [
        [["gh", "pr", "list", "hunter2"]], [["hunter2"]], [["gh", "hunter2"]], [[]], [["gh", ["pr"], "list"]],
        [["gh", "pr\nlist"]], [["GH", "pr", "list"]],
    ],
)  # fmt: skip
async def test_no_word_that_is_not_in_the_table_gets_into_the_store(commands: Any) -> None:
    async with proxy_over(github()) as stage:
        await stage.client.list_tools()
        assert report(stage, commands) == []


@requirement("trust:shell")
def test_a_report_is_read_with_care() -> None:
    assert read_report({"commands": GH * 100}) == [("gh", "pr", "list")]
    assert read_report({"commands": [["hunter2"]] * 1000 + GH}) == []
    for commands in (None, "gh pr list", {"gh": 1}, ["gh pr list"], [7]):
        with pytest.raises(ValueError, match="commands: expected a list of lists"):
            read_report({"commands": commands})


async def test_where_texts_are_not_kept_the_command_is_not_either() -> None:
    async with proxy_over(github(), record="off") as stage:
        await stage.client.list_tools()
        (miss,) = report(stage)
        assert miss.query == ""
