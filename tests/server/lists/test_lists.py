"""Which tools a profile's list holds, when it moves, and why a tool is not in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import FakeUpstream, config_of, failing_store, search_over, tool
from requirements import requirement

from foretool.server.catalog.catalog import Catalog
from foretool.server.config.loader import Config, LiveConfig
from foretool.server.lists.epochs import FIRST_S, QUIET_S, ListKeeper
from foretool.server.lists.hidden import HiddenTools, Why
from foretool.server.lists.maker import ListInputs, View
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import raw
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.policy import TrustPolicy
from foretool.storage.records import Call, SessionRecord, ToolId
from foretool.storage.store import Store


class Setting:
    """Lists over one upstream, a store, and a clock to be set."""

    def __init__(self, store: Store | None = None, **settings: Any) -> None:
        upstream = FakeUpstream("calc")
        self.config: Config = config_of(upstream, **settings)
        self.store = store or failing_store()[0]
        self.now = 1000.0
        self.catalog = Catalog(list(self.config.servers.values()))
        tools = [tool("add", "Adds"), tool("sub", "Subtracts"), tool("big", "word " * 800)]
        self.catalog.replace("calc", [raw(each) for each in tools])
        live = LiveConfig(self.config)
        self.runs = 0
        self.unlisted: frozenset[str] = frozenset()
        self.search = search_over(self.catalog)
        self.recorder = recorder = Recorder(self.store, live, lambda: self.now)
        self.lists = ListKeeper(
            ListInputs(
                self.catalog,
                self.search,
                recorder,
                live,
                TrustPolicy(live),
                lambda: self.runs,
                lambda: self.unlisted,
                lambda: self.unlisted,
            )
        )
        self.hidden = HiddenTools(self.lists)

    def view(self, policy: Any = "frozen", profile: str = "") -> View:
        return self.lists.view(self.config.profiles[profile], policy)

    def why(self, view: View, tool: str) -> Why:
        return self.hidden.why(view, ToolId(tool), tool.partition("__")[0])

    def used(self, name: str, times: int = 1, outcome: Any = "ok") -> None:
        call = Call("s", self.now, ToolId(f"calc__{name}"), "calc", "name", True, outcome, 1.0, True, "{}")
        self.store.calls.record([call] * times)


OWN = ("call_tool", "call_tool_write", "discover_tools")


@requirement("list:fill")
def test_what_nobody_used_or_asked_for_is_named_from_the_first_day_on() -> None:
    view = Setting(list_fill=True, list_tokens=1400).view()
    assert (view.tools, {*view.named}) == (OWN, {"calc__add", "calc__sub", "calc__big"}) and view.tokens <= 1400
    growing = Setting(list_fill=True, list_tokens=1000).view("growing")
    assert (growing.tools, {*growing.named}) == (OWN, {*view.named}) and growing.tokens <= 500
    # Where a list names nothing, what is left defines tools.
    view = Setting(list_fill=True, list_names=False, list_tokens=600).view()
    assert (view.tools, view.named) == (("calc__add", "calc__sub", *OWN), ())


@pytest.mark.parametrize("policy", ["frozen", "growing", "full"])
def test_a_list_that_was_prepared_in_steps_is_the_same(policy: Any) -> None:
    given = {"list_fill": True, "list_tokens": 600}
    at_once, prepared = Setting(**given), Setting(**given)
    profile = prepared.config.profiles[""]
    assert prepared.lists.at_hand(profile, policy) is None
    list(prepared.lists.prepare(profile, policy))
    assert prepared.view(policy) == at_once.view(policy)
    assert prepared.lists.at_hand(profile, policy) is not None
    assert list(prepared.lists.prepare(profile, policy)) == []


def test_the_order_in_which_a_server_lists_changes_no_list() -> None:
    setting = Setting(list_tokens=600)
    first = setting.view()
    tools = [raw(jsonrpc.decode_value(each.definition)) for each in reversed(setting.catalog.listed("calc"))]
    before = setting.catalog.now.server("calc").digest
    setting.catalog.replace("calc", tools)
    assert setting.catalog.now.server("calc").digest == before
    assert setting.view().epoch == first.epoch


@requirement("list:fill")
def test_a_tool_that_most_tasks_use_is_defined_and_the_others_are_named() -> None:
    setting = Setting(list_fill=True, list_tokens=1600)
    setting.used("big", 2)
    setting.used("sub")
    named = {"calc__add", "calc__big", "calc__sub"}
    assert (setting.view().tools, set(setting.view().named)) == (OWN, named)
    setting.used("big", 2)
    setting.lists.advance()
    setting.lists.forget()
    view = Setting(setting.store, list_fill=True, list_tokens=1601).view()
    assert (view.tools, set(view.named)) == (("calc__big", *OWN), {"calc__add", "calc__sub"})
    # A growing list has no room for it, and names it.
    assert "calc__big" in setting.view("growing").named


@requirement("list:fill")
def test_what_was_used_comes_before_what_fills_the_list() -> None:
    setting = Setting(list_fill=True, list_tokens=1500)
    assert setting.view().tools == OWN
    setting.used("big", 3)
    setting.lists.advance()
    setting.lists.forget()
    view = Setting(setting.store, list_fill=True, list_tokens=1501).view()
    assert "calc__big" in view.shown
    assert view.ranked is not None and view.ranked[0] == "calc__big"


@requirement("list:fill")
def test_a_filled_list_is_the_same_after_a_restart_and_ends_with_the_setting() -> None:
    before = Setting(list_fill=True, list_tokens=600)
    first = before.view()
    after = Setting(before.store, list_fill=True, list_tokens=600)
    again = after.view()
    assert (again.array, again.epoch) == (first.array, first.epoch)
    assert after.why(again, "calc__big") == before.why(first, "calc__big")
    assert Setting(before.store, list_fill=False, list_tokens=600).view().tools == OWN


@requirement("learn:list")
def test_what_was_learned_is_in_the_list_of_the_next_epoch() -> None:
    setting = Setting(list_fill=True, list_tokens=3000)
    first = setting.view("growing")
    setting.used("sub", 3)
    setting.lists.forget()
    assert setting.view("growing").array == first.array
    setting.runs = 1
    setting.lists.forget()
    view = setting.view("growing")
    assert view.epoch == 2 and "calc__sub" in view.shown and "calc__sub" not in first.shown


@requirement("learn:names")
def test_what_a_list_cannot_define_is_named_in_the_bridge_that_runs_it_before_anything_was_learned() -> None:
    setting = Setting(list_tokens=600, list_names=True)
    for name in ("add", "big", "sub"):
        setting.used(name)
    view = setting.view()
    # `big` takes 800 tokens as a definition and a few as a name.
    assert "calc__big" not in view.shown and "calc__big" in view.named
    assert set(view.tools) | set(view.named) == {*OWN, "calc__add", "calc__big", "calc__sub"}
    described = {each["name"]: each["description"] for each in json.loads(view.array)}
    names = ", ".join(f"{one}()" for one in view.named)
    assert described["call_tool_write"].endswith(f"Some of them: {names}.") and "calc__" not in described["call_tool"]
    assert view.tokens <= view.budget
    # It is kept with the list, also for another proxy, and is on record beside it.
    setting.lists.forget()
    assert setting.view().named == view.named
    setting.lists.record("s", view, (), "list")
    kept = setting.store.sessions.exposures("s")
    assert [(each.tools, each.reason, each.tokens > 0) for each in kept] == [
        (view.tools, "list", True), (view.named, "named", False),
    ]  # fmt: skip
    # A growing list names it as well, and a whole list needs no names.
    assert ("calc__big" in setting.view("growing").named, setting.view("full").named) == (True, ())


@requirement("learn:names")
def test_a_denied_tool_is_never_named_and_no_list_goes_beyond_its_budget() -> None:
    setting = Setting(list_tokens=600, list_names=True, profiles={"tight": {"deny": ["calc__big"]}})
    for name in ("add", "big", "sub"):
        setting.used(name)
    view = setting.view(profile="tight")
    assert {*view.tools, *view.named} == {*OWN, "calc__add", "calc__sub"}
    tight = Setting(list_tokens=10, list_names=True)
    tight.used("add")
    assert tight.view().named == ()


def test_usage_is_brought_in_by_the_next_epoch_and_not_before() -> None:
    setting = Setting(epoch_s=100)
    setting.view()
    setting.used("sub")
    assert setting.view().tools == OWN
    setting.now += 99
    setting.lists.advance()
    assert setting.view().tools == OWN
    setting.now += 1
    setting.lists.advance()
    assert setting.view().tools == ("calc__sub", *OWN)
    assert setting.view().epoch == 2


def test_with_epoch_zero_time_alone_moves_nothing() -> None:
    setting = Setting(epoch_s=0)
    setting.view()
    setting.used("sub")
    setting.now += 1e9
    setting.lists.advance()
    assert setting.view().tools == OWN


def test_another_proxy_on_the_same_store_serves_the_same_list() -> None:
    one = Setting()
    one.used("sub")
    served = one.view()
    other = Setting(one.store)
    other.used("add", 10)
    again = other.view()
    assert (again.array, again.epoch) == (served.array, served.epoch)


def test_a_list_that_another_proxy_has_made_since_is_taken_up() -> None:
    one = Setting(epoch_s=100)
    other = Setting(one.store, epoch_s=100)
    assert one.view().array == other.view().array and not one.lists.follow_others()
    other.used("sub")
    other.now += 100
    other.lists.advance()
    assert other.view().epoch == 2
    assert one.lists.follow_others() and not one.lists.follow_others()
    one.now = other.now
    assert (one.view().array, one.view().epoch) == (other.view().array, 2)


def begin(setting: Setting) -> View:
    """The list of a session that shares it with no other."""
    setting.lists.begin_session("")
    return setting.view()


@requirement("list:frozen:first-week")
def test_what_was_used_moves_the_list_of_a_new_session_and_nothing_else_does() -> None:
    setting = Setting()
    begin(setting)
    before = begin(setting)
    assert before.epoch == 1
    setting.now += 1
    setting.used("sub")
    assert setting.view() is before
    after = begin(setting)
    assert (after.tools, after.epoch) == (("calc__sub", *OWN), 2)
    setting.now += 1
    setting.used("sub", 5)
    assert (begin(setting).epoch, begin(setting).array) == (2, after.array)


@requirement("list:frozen:first-week")
@pytest.mark.parametrize("settings", [{"epoch_s": 0}, {"epoch_s": 10 * FIRST_S}])
def test_after_the_first_week_a_session_moves_the_list_only_once_prompt_caches_are_gone(settings: Any) -> None:
    setting = Setting(**settings)
    setting.store.sessions.begin(SessionRecord("s", "c", "1", "legacy", "stdio", "", setting.now))
    begin(setting)
    setting.now += FIRST_S
    setting.used("sub")
    setting.now += QUIET_S - 1
    assert begin(setting).tools == OWN
    setting.now += 1
    assert begin(setting).tools == (("calc__sub", *OWN) if settings["epoch_s"] > 0 else OWN)


def test_a_list_moves_by_itself_once_nobody_has_used_it_for_longer_than_caches_last() -> None:
    setting = Setting(epoch_s=10 * FIRST_S)
    setting.view()
    setting.now += 2 * QUIET_S
    assert not setting.lists.advance(), "nobody was given the list"
    setting.lists.record("s", setting.view(), (), "list")
    setting.now += 10
    setting.used("sub")
    setting.now += QUIET_S - 1
    assert not setting.lists.advance()
    setting.now += 1
    assert setting.lists.advance()
    assert setting.view().tools == ("calc__sub", *OWN)
    assert not setting.lists.advance()


@requirement("list:failing")
@pytest.mark.parametrize("outcome", ["tool_error", "error", "lost"])
def test_a_tool_that_fails_at_every_call_is_not_listed_until_it_works(outcome: str) -> None:
    setting = Setting(epoch_s=100)
    setting.used("add", 9, outcome)
    setting.used("sub")
    assert begin(setting).tools == ("calc__sub", *OWN)
    setting.now += 1
    setting.used("add")
    assert begin(setting).tools == ("calc__add", "calc__sub", *OWN)
    setting.now += 1
    setting.used("sub", 1000, outcome)  # all that is looked at
    assert begin(setting).tools == ("calc__add", *OWN)


def test_a_tool_that_the_next_list_has_is_hidden_because_this_one_is_older() -> None:
    setting = Setting()
    view = setting.view()
    assert setting.why(view, "calc__sub").cause == "rank"
    setting.used("sub")
    assert setting.why(view, "calc__sub").cause == "stale"


def test_a_tool_for_which_a_growing_list_keeps_its_tokens_back_is_hidden_by_the_policy() -> None:
    setting = Setting(list_tokens=1400)
    setting.used("big")
    why = setting.why(setting.view("growing"), "calc__big")
    assert (why.cause, why.change) == (
        "policy", 'pin calc__big, or set "policy": "frozen": this list keeps 553 tokens for what it gains',
    )  # fmt: skip


def test_the_budget_is_filled_greedily_and_a_tool_that_does_not_fit_is_passed_over() -> None:
    setting = Setting(list_tokens=600)
    setting.used("big", 50)
    setting.used("add", 3)
    view = setting.view()
    assert view.tools == ("calc__add", *OWN)
    assert view.tokens <= 600
    why = setting.why(view, "calc__big")
    assert (why.cause, why.rank, why.of) == ("budget", 1, 2)


def test_a_grown_list_keeps_its_bytes_and_adds_to_them() -> None:
    setting = Setting()
    view = setting.view()
    draft = setting.lists.maker.draft(setting.config.profiles[""], "frozen")
    grown = draft.append(view.array, view.for_pages, [ToolId("calc__sub"), ToolId("calc__gone")], "modern")
    assert grown.startswith(view.array[:-1])
    assert [each["name"] for each in json.loads(grown)] == [*OWN, "calc__sub"]


def test_each_profile_and_policy_has_a_list_of_its_own() -> None:
    setting = Setting(profiles={"p": {"pin": ["calc__sub"]}, "none": {"servers": []}})
    assert setting.view(profile="p").tools == ("calc__sub", *OWN)
    assert setting.view("full").tools == ("calc__add", "calc__big", "calc__sub", *OWN)
    assert setting.view("full", "none").tools == OWN


@requirement("list:own-tools")
def test_a_stored_list_with_other_tools_of_ours_or_other_rules_is_not_served() -> None:
    store, _ = failing_store()
    before = Setting(store, bridges="one").view()
    assert "call_tool_write" not in before.tools
    after = Setting(store).view()
    assert "call_tool_write" in after.tools and after.epoch == before.epoch + 1
    denying = Setting(store, profiles={"tight": {"deny": ["calc__add"], "pin": ["calc__*"]}})
    assert "calc__add" not in denying.view(profile="tight").tools


def test_tools_that_change_all_the_time_do_not_keep_a_list_from_being_made() -> None:
    setting, changes = Setting(list_fill=True, list_tokens=600), 0
    for _ in setting.lists.prepare(setting.config.profiles[""], "frozen"):
        changes += 1
        setting.catalog.replace("calc", [raw(tool(f"t{changes}"))])
        assert changes < 50
    assert setting.view().named == (f"calc__t{changes}",)


@requirement("list:small-catalogs-whole")
def test_all_tools_of_a_small_catalog_are_listed_unless_a_budget_is_set() -> None:
    def listed(tools: int, **settings: Any) -> View:
        setting = Setting(list_whole=True, **settings)
        setting.catalog.replace("calc", [raw(tool(f"tool_{number}", "word " * 120)) for number in range(tools)])
        return setting.view()

    small = listed(30)
    assert 2_000 < small.tokens < 10_000 and len(small.tools) == 30 + len(OWN)
    assert listed(90).tokens <= 2_000, "more than 10,000 tokens"
    assert listed(30, list_tokens=2_000).tokens <= 2_000
