"""What would have shown a missed tool: each change that applies, tried before it is offered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_fakes import remember
from msgspec.structs import replace
from recorded_tasks import HOUR, START, write_recorded
from stored_records import MISS

from foretool.server import offline
from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.server.ledger.fixes import (
    NAMED_NOW,
    FixProblem,
    MissDiagnosis,
    describe_for,
    diagnose_miss,
    edit_config,
    name_for,
)
from foretool.server.ledger.story import say_why
from foretool.server.upstreams.failure_memory import digest_entry
from foretool.storage.opening import open_store
from foretool.storage.records import Definition, Discovery, Exposure, Failure, Miss, SessionRecord, Tool, ToolId
from foretool.storage.steps import finish

TASKS = [("phase of the moon", ["sky__moon"]), ("add two numbers", ["calc__add"])] * 3
HIDDEN = replace(
    MISS, session="s0", tool="sky__moon", noticed="discovery", cause="budget", rank=2, of=6,
    query="how full is it tonight?", exposure=0, discovery=0, call=0, change="", at=START + 3,
)  # fmt: skip


def found(path: Path, miss: Miss = HIDDEN) -> MissDiagnosis:
    config = loader.load(path)
    with offline.open_offline(config) as app:
        return diagnose_miss(app, miss)


def kinds(path: Path, miss: Miss = HIDDEN) -> list[str]:
    return [each.kind for each in found(path, miss).fixes]


def change_entry(path: Path, server: str, **entry: Any) -> None:
    text = json.loads(path.read_text())
    text["mcpServers"][server] |= entry
    path.write_text(json.dumps(text))


def test_a_hidden_tool_may_be_pinned_described_or_given_room(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS, list_tokens=320)
    diagnosis = found(path)
    assert (diagnosis.tool, diagnosis.listed_now, diagnosis.why) == ("sky__moon", False, "")
    assert [each.kind for each in diagnosis.fixes] == ["pin", "budget", "description"]
    pin, budget, described = diagnosis.fixes
    assert [each.text for each in pin.changes] == ["pin+=sky__moon"] and pin.list_tokens > 320
    assert budget.what.startswith("raise list_tokens from 320 to ") and budget.list_tokens <= 450
    assert described.changes[0].value == "Phase of the moon on a day.\nUsed for: how full is it tonight?."
    *_, named = found(path, replace(HIDDEN, query="when is the eclipse")).fixes
    assert named.what == "let sky__moon be called sky__moon_eclipse" and named.changes[0].keys[-2:] == ("moon", "name")


def test_a_tool_that_a_command_went_round_may_be_pinned_or_described_as_the_command(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS, list_tokens=320)
    bypass = replace(HIDDEN, noticed="shell", cause="bypass", query="gh pr list", rank=1, recovered="shell")
    diagnosis = found(path, bypass)
    assert diagnosis.why == "`gh pr list` in the client's shell does what it does"
    assert [each.kind for each in diagnosis.fixes] == ["pin", "budget", "description"]
    assert diagnosis.fixes[-1].what == 'add to the description of sky__moon: "Used for: gh pr list"'
    (tmp_path / "listed").mkdir()
    assert kinds(write_recorded(tmp_path / "listed", TASKS, pin=["sky__moon"]), bypass) == ["description"]


@pytest.mark.parametrize("kind", ["pin", "budget"])
def test_a_change_that_is_offered_lists_the_tool(tmp_path: Path, kind: str) -> None:
    path = write_recorded(tmp_path, TASKS, list_tokens=320)
    fix = next(each for each in found(path).fixes if each.kind == kind)
    config = loader.load(path)
    changed = loader.parse(edit_config(config, fix).text().encode(), path)
    with offline.open_offline(changed) as app:
        view = offline.view(app, changed.profiles[""])
        assert "sky__moon" in view.shown and view.tokens == fix.list_tokens


def test_the_least_budget_is_that_of_the_lists_themselves(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS, list_tokens=320)
    config = loader.load(path)
    with offline.open_offline(config) as app:
        profile = config.profiles[""]
        for budget in range(100, 900, 50):
            wanted = replace(profile, list_tokens=budget)
            for policy in ("frozen", "growing", "full"):
                told = app.lists.try_out(wanted, policy).told
                for tool in app.catalog.tools():
                    assert app.lists.would_tell(wanted, policy, tool.id) == (tool.id in told)


def test_a_list_that_keeps_room_to_grow_may_be_frozen(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS, policy="growing", list_tokens=430)
    fixes = found(path, replace(HIDDEN, noticed="call", cause="policy")).fixes
    (policy,) = (each for each in fixes if each.kind == "policy")
    assert [each.text for each in policy.changes] == ["policy=frozen"]


def test_a_profile_is_changed_where_it_has_its_own_setting(tmp_path: Path) -> None:
    profiles = {"work": {"servers": ["sky"], "list_tokens": 310, "policy": "frozen"}}
    path = write_recorded(tmp_path, TASKS, profiles=profiles)
    with open_store(loader.load(path).storage) as store:
        store.sessions.begin(SessionRecord("w", "cursor", "1", "legacy", "stdio", "work", START))
    fixes = found(path, replace(HIDDEN, session="w", noticed="call")).fixes
    texts = [each.text for fix in fixes for each in fix.changes]
    assert texts[0] == "profiles.work.pin+=sky__moon" and texts[1].startswith("profiles.work.list_tokens=")


DENIED = replace(HIDDEN, noticed="call", cause="denied")


@pytest.mark.parametrize(
    ("entry", "kind", "changes"),
    [
        ({"disabled": True}, "enable", ["servers.sky.disabled=false"]),
        ({"exclude": ["mo*", "x"]}, "enable", ['servers.sky.exclude=["x"]']),
        ({"include": ["forecast"]}, "enable", ["servers.sky.include+=moon"]),
        ({"deny": ["moon", "@destructive"]}, "rule", ['servers.sky.deny=["@destructive"]']),
    ],
)
def test_what_the_config_keeps_away_may_be_let_in(
    tmp_path: Path, entry: dict[str, Any], kind: str, changes: list[str]
) -> None:
    path = write_recorded(tmp_path, TASKS)
    change_entry(path, "sky", **entry)
    with open_store(loader.load(path).storage) as store:
        store.catalog.save_exposed_names({ToolId("sky__moon"): ("sky", "moon")})
    (fix,) = found(path, DENIED).fixes
    assert (fix.kind, [each.text for each in fix.changes]) == (kind, changes)


def test_a_server_that_fails_again_is_for_doctor_although_its_tools_are_known(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS, list_tokens=320)
    config = loader.load(path)
    with open_store(config.storage) as store:
        digest = digest_entry(config.servers["sky"])
        store.serving.save_failure(Failure("sky", digest, "FT201", "away", 1.0, 1.0, 1, 1.0))
    diagnosis = found(path, replace(DENIED, cause="offline"))
    assert [each.command for each in diagnosis.fixes] == ["foretool doctor sky"] and not diagnosis.lifted


def test_a_class_of_tools_stays_refused(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS)
    change_entry(path, "sky", deny=["@destructive"])
    assert kinds(path, DENIED) == []


def test_a_profile_may_get_a_server(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS, profiles={"work": {"servers": ["calc"]}})
    with open_store(loader.load(path).storage) as store:
        store.sessions.begin(SessionRecord("w", "cursor", "1", "legacy", "stdio", "work", START))
    (fix,) = found(path, replace(DENIED, session="w")).fixes
    assert (fix.kind, [each.text for each in fix.changes]) == ("profile", ["profiles.work.servers+=sky"])


def test_what_waits_for_the_user_is_reviewed(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS)
    held = Definition("sky", "tool", "sun", "h", b"{}", exposed="sky__sun")
    with open_store(loader.load(path).storage) as store:
        finish(store.approvals.hold("sky", ["tool"], [held]))
    (fix,) = found(path, replace(DENIED, tool="sky__sun", change="foretool review sky")).fixes
    assert (fix.kind, fix.command, fix.changes) == ("approve", "foretool review sky", ())
    with pytest.raises(FixProblem, match="foretool review sky"):
        edit_config(loader.load(path), fix)


def test_a_name_that_no_tool_has_may_become_an_alias(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS)
    miss = replace(HIDDEN, noticed="unknown_name", cause="unknown", tool="sky__moon_now", at=START + 1)
    (fix,) = found(path, miss).fixes
    assert [each.text for each in fix.changes] == ["servers.sky.tools.moon.name=moon_now"]
    config = loader.load(path)
    changed = loader.parse(edit_config(config, fix).text().encode(), path)
    with offline.open_offline(changed) as app:
        assert app.catalog.find("sky__moon_now") is not None
    other = replace(miss, session="s1", at=START + HOUR + 1)
    assert kinds(path, other) == [], "another tool was called then: nobody knows that this one was meant"
    assert kinds(path, replace(miss, at=START + 3)) == [], "nothing was called then"
    # The name of another server's tool is never given away.
    assert kinds(path, replace(miss, tool="calc__moon")) == []
    assert kinds(path, replace(miss, tool="sky__mooon")) == [], "nobody wants a tool to be called by a misspelling"


def test_a_search_in_vain_is_for_the_tool_that_was_called_then(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS, list_tokens=320)
    miss = replace(HIDDEN, tool="", noticed="nothing_found", cause="gate", rank=0, at=START + 1)
    diagnosis = found(path, miss)
    described = diagnosis.fixes[0]
    assert diagnosis.tool == "sky__moon" and described.kind == "description"
    assert described.is_doubtful, "nothing but the order says that these words were for this tool"
    near = found(path, replace(miss, query="how full is the moon?")).fixes[0]
    assert near.kind == "description" and not near.is_doubtful


def test_what_was_called_after_a_search_for_something_else_is_not_what_a_search_in_vain_was_for(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS)
    miss = replace(
        HIDDEN, tool="", noticed="nothing_found", cause="gate", rank=0, at=START + 1, query="17 percent of 20"
    )
    with open_store(loader.load(path).storage) as store:
        store.discoveries.add(Discovery("s0", START + 1.5, "how full is the moon?", (), None, "high", (), 0, 1.0))
    diagnosis = found(path, miss)
    assert (diagnosis.tool, diagnosis.fixes) == ("", ())


def test_a_search_in_vain_names_the_servers_whose_tools_it_could_not_see(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS)
    change_entry(path, "calc", disabled=True)
    miss = replace(HIDDEN, session="s9", tool="", noticed="nothing_found", cause="gate", rank=0)
    assert found(path, miss).why.endswith("; tools of these servers were not there to be found: calc (disabled)")


def test_learning_is_offered_once_there_is_something_to_learn_from(tmp_path: Path) -> None:
    miss = replace(HIDDEN, cause="rank")
    path = write_recorded(tmp_path, TASKS * 2, list_tokens=320)
    assert kinds(path, miss)[-1] == "learn"
    (tmp_path / "few").mkdir()
    assert "learn" not in kinds(write_recorded(tmp_path / "few", TASKS, list_tokens=320), miss)


def test_the_policy_of_the_list_that_the_client_had_counts(tmp_path: Path) -> None:
    path = write_recorded(tmp_path, TASKS, list_tokens=430)
    config = loader.load(path)
    with open_store(config.storage) as store:
        remember(config, store, "sky", {"moon": "Phase of the moon.", "big": "word " * 900})
        id = store.sessions.add_exposure(Exposure("s0", START, "growing", 1, (), 300, "list"))
    assert "policy" in kinds(path, replace(HIDDEN, noticed="call", exposure=id))


def test_a_description_gains_the_words_once_and_on_one_line() -> None:
    tool = Tool(ToolId("a__b"), "a", "b", b'{"name":"b","description":"Does it."}', "h")
    assert describe_for(tool, "find\x1b my\nkeys\u202e.") == "Does it.\nUsed for: find my keys."
    again = replace(tool, definition=b'{"name":"b","description":"Does it.\\nUsed for: find keys."}')
    assert describe_for(again, "Find keys") is None
    assert describe_for(again, "open doors") == "Does it.\nUsed for: find keys. open doors."
    assert describe_for(tool, "  ") is None


def name(folder: Path, *tasks: str, other: str = "", **override: Any) -> str | None:
    """The name that `sky__moon` could get for these tasks."""
    path = write_recorded(folder, [])
    text = json.loads(path.read_text())
    text["mcpServers"]["sky"]["tools"] = {"moon": override}
    path.write_text(json.dumps(text))
    with offline.open_offline(loader.load(path)) as app:
        (tool,) = (each for each in app.catalog.tools() if (each.upstream, each.name) == ("sky", "moon"))
        return name_for(app.catalog, tool, tasks, app.catalog.get(ToolId(other)) if other else None)


@pytest.mark.parametrize(
    "task", ["", "the moon", "\u202e\x1b[2J \u0440\u0443\u0441 4711", "x" * 80, "'; drop-table__calc \"}"]
)
def test_no_word_that_may_not_stand_in_a_name_is_in_one(tmp_path: Path, task: str) -> None:
    found = name(tmp_path, task)
    assert found is None or (found.isascii() and found.replace("_", "").isalpha() and len(found) <= 40)


def test_a_tool_that_the_user_named_keeps_its_name(tmp_path: Path) -> None:
    assert name(tmp_path, "when is the eclipse", name="luna") is None


@pytest.mark.parametrize("own", ["alarm_change", "bookFlight", "get-moon"])
def test_a_name_of_several_words_gets_no_other_word_behind_it(tmp_path: Path, own: str) -> None:
    path = write_recorded(tmp_path, [])
    with offline.open_offline(loader.load(path)) as app:
        tool = Tool(ToolId(f"sky__{own}"), "sky", own, b"{}", "h")
        assert name_for(app.catalog, tool, ["eclipse of the sun"]) is None


@pytest.mark.parametrize("task", ["daily", "how full tonight", "is it waning", "shared"])
def test_no_word_that_says_when_or_how_is_in_a_name(tmp_path: Path, task: str) -> None:
    assert name(tmp_path, task) is None


def test_what_the_next_list_names_needs_no_pin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_recorded(tmp_path, TASKS, list_tokens=345, list_names=True)
    told = found(path)
    assert (told.fixes, told.lifted, told.listed_now) == ((), NAMED_NOW, False)
    assert run(["misses", "1", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert f"nothing any more: {NAMED_NOW}" in out and "in the next list" not in out
    bypass = replace(HIDDEN, noticed="shell", cause="bypass", query="gh pr list", recovered="shell")
    assert found(path, bypass).named_now and not found(path, bypass).lifted
    with open_store(loader.load(path).storage) as store:
        store.calls.record([], [bypass])
    assert run(["misses", "7", "--config", str(path)]) == 0
    assert "in the next list    by its name" in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        "pin sky__moon: without that, the room that the list has left is kept for tools in use and for names",
        "pin sky__moon: it fits, but what the list has left is kept for tools in use and for names",
    ],
)
def test_a_tool_that_the_list_had_room_for_is_told_so_in_the_words_of_any_release(change: str) -> None:
    said = "it would fit, but the room that the list has left is kept for tools in use and for names"
    assert say_why(replace(HIDDEN, change=change)) == said
