"""Decisions of one conversation, as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fakes import changed
from msgspec.json import decode, encode
from requirements import requirement

from foretool.server.clients.conversation import MOST_CONVERSATIONS, MOST_MEMO, Conversation
from foretool.server.clients.pursuit import Settled
from foretool.server.clients.session import Forward, Lookup, Session, SessionMemo, Via
from foretool.server.lists.maker import View
from foretool.storage.records import Call, Cause, Discovery, Match, Miss, SessionRecord, Tool, ToolId

ADD = Tool(ToolId("calc__add"), "calc", "add", b"{}", "h")
SUB = Tool(ToolId("calc__sub"), "calc", "sub", b"{}", "h")
MAIL = Tool(ToolId("mail__send"), "mail", "send", b"{}", "h")
RECORD = SessionRecord("k", "c", "1", "legacy", "stdio", "", 0.0)


def view(*tools: ToolId) -> View:
    return View("frozen", 1, tools, frozenset(tools), b"[]", 0, 2000, 0.0)


def called(
    made: Session, tool: Tool, via: Via, at: float, chat: Conversation | None = None
) -> tuple[list[Miss], Forward]:
    """The misses that are recorded once a call is over, and where it goes."""
    missed, forward = made.call(tool, via, at, chat)
    return list(made.settle(missed).revealed), forward


def refused(made: Session, tool: Tool, cause: Cause, change: str = "") -> tuple[Miss, ...]:
    """The misses that are recorded once a call through a bridge was refused."""
    return made.settle(made.refuse(tool.id, tool.upstream, "bridge", cause, change, 1.0)).revealed


def session(*shown: ToolId) -> Session:
    made = Session(RECORD)
    made.list.give(view(*shown), 7)
    return made


def found(*tools: Tool, task: str = "", tokens: int = 50, at: float = 1.0) -> Discovery:
    matches = tuple(Match(tool.id, rank, 1.0) for rank, tool in enumerate(tools, 1))
    return Discovery("k", at, task, (), None, "high", matches, tokens, 1.0)


class Ledger:
    """A session, and the misses on record as they are revised."""

    def __init__(self, *shown: ToolId) -> None:
        self.session = session(*shown)
        self.misses: list[Miss] = []
        self._searches = 0

    def take(self, settled: Settled) -> None:
        self.misses += (*settled.new, *settled.revealed)
        for before, after in settled.changed:
            place = self.misses.index(before)
            self.misses[place : place + 1] = [after] if after is not None else []

    def search(self, *tools: Tool, task: str = "", tokens: int = 50, ranked: Sequence[Tool] = (), **more: Any) -> None:
        self._searches += 1
        discovery = changed(found(*tools, task=task, tokens=tokens, at=float(self._searches)), **more)
        order = [tool.id for tool in ranked or tools]
        is_lookup = bool(discovery.names) and not task
        lookup = Lookup(any(tool.id in discovery.names for tool in tools)) if is_lookup else None
        self.take(self.session.discovered(discovery, self._searches, 40, ranked=order, lookup=lookup))

    def call(self, tool: Tool, at: float = 100.0) -> None:
        missed, _ = self.session.call(tool, "bridge", at)
        self.take(self.session.settle(missed))

    def told(self) -> list[tuple[str, str, str, int, int, int]]:
        """Tool, what revealed it, the words, its rank, and what it cost in turns and tokens."""
        return [(each.tool, each.noticed, each.query, each.rank, each.turns, each.tokens) for each in self.misses]


def test_a_listed_tool_is_forwarded_without_a_miss() -> None:
    assert called(session(ADD.id), ADD, "name", 1.0) == ([], Forward(ADD, False, 0))


def test_a_session_keeps_the_conversations_heard_of_last() -> None:
    made = session(ADD.id)
    handles = [made.conversations.handle_for(made.conversations.whole, 1) for _ in range(MOST_CONVERSATIONS)]
    assert len(set(handles)) == MOST_CONVERSATIONS
    oldest = made.conversations.of(handles[0])
    called(made, ADD, "name", 1.0, oldest)
    made.conversations.handle_for(made.conversations.whole, 1)
    assert made.conversations.of(handles[0]) is oldest
    assert made.conversations.of(handles[1]).opened_by == 0


def test_names_that_lead_nowhere_are_misses_that_say_what_would_help() -> None:
    conversation = session()
    unknown = conversation.unknown("calc__ad", [ADD.id], 1.0)
    assert (unknown.noticed, unknown.cause, unknown.recovered) == ("unknown_name", "unknown", "suggested")
    (denied,) = refused(conversation, MAIL, "denied", "add its server")
    assert (denied.noticed, denied.cause, denied.change, denied.recovered) == (
        "bridge", "denied", "add its server", "no",
    )  # fmt: skip
    assert refused(conversation, MAIL, "denied", "add its server") == (), "once for each list"
    assert list(conversation.conversations.whole.history) == []


def test_a_call_of_a_tool_that_a_hint_or_the_list_had_named_is_hidden_and_no_miss() -> None:
    conversation = session(ADD.id)
    chat = conversation.conversations.whole
    chat.note_hint([SUB.id])
    assert called(conversation, SUB, "bridge", 1.0) == ([], Forward(SUB, True, 0))
    # A hint that came before a discovery of the same task keeps its merit; in a later task the discovery counts.
    conversation.discovered(found(SUB, task="subtract"), 3, 40)
    assert called(conversation, SUB, "bridge", 1.0)[0] == []
    chat.note_prompt(("another thing",), 2.0)
    conversation.discovered(found(SUB, task="another thing"), 4, 40)
    assert [each.discovery for each in called(conversation, SUB, "bridge", 3.0)[0]] == [4]
    named = session()
    named.list.give(changed(view(ADD.id), named=(MAIL.id,)), 8)
    assert called(named, MAIL, "bridge", 1.0) == ([], Forward(MAIL, True, 0))


def test_a_session_goes_on_elsewhere_as_it_was_left() -> None:
    before = session(ADD.id)
    before.discovered(found(SUB, task="subtract"), 3, 40)
    called(before, MAIL, "name", 1.0)
    before.agree(ADD)
    before.list.grow([SUB.id], found=True)
    memo = decode(encode(before.memo()), type=SessionMemo)
    after = Session(memo.record)
    after.resume(memo)
    after.list.give(view(ADD.id), memo.exposure)
    assert after.record == before.record
    assert after.has_agreed(ADD) and after.list.lists(SUB.id) and not after.list.sees(SUB.id)
    # The same miss is not counted again, and what was found there is known here.
    assert called(after, MAIL, "name", 2.0) == ([], Forward(MAIL, True, 0))
    (miss,), forward = called(after, SUB, "name", 2.0)
    assert (miss.noticed, miss.query, forward.discovery) == ("discovery", "subtract", 3)
    assert after.memo().chat.pursuits != before.memo().chat.pursuits


def test_a_memo_stays_small_however_much_was_found() -> None:
    long = session()
    for place in range(3 * MOST_MEMO):
        long.discovered(found(Tool(ToolId(f"s__t{place}"), "s", f"t{place}", b"{}", "h"), task="x"), place, 40)
    assert list(long.memo().chat.found) == [f"s__t{place}" for place in range(2 * MOST_MEMO, 3 * MOST_MEMO)]


@requirement("miss:cost-once")
def test_a_search_is_paid_for_once_and_the_misses_that_it_led_to_share_it() -> None:
    ledger = Ledger()
    ledger.search(ADD, SUB, task="count", tokens=51)
    ledger.call(ADD)
    assert ledger.told() == [("calc__add", "discovery", "count", 1, 1, 51)]
    ledger.call(SUB)
    ledger.call(SUB)
    assert ledger.told() == [
        ("calc__add", "discovery", "count", 1, 1, 26),
        ("calc__sub", "discovery", "count", 2, 0, 25),
    ]
    ledger.search(ADD, task="count again", tokens=40)
    ledger.call(ADD)
    assert ledger.told()[2:] == [("calc__add", "discovery", "count again", 1, 1, 40)], "another search costs again"


@requirement("miss:cost-of-vain-searches")
def test_a_search_that_led_to_calls_of_what_it_found_is_not_charged_to_another_miss() -> None:
    ledger = Ledger(ADD.id)
    ledger.search(ADD, task="add two numbers", tokens=1000)
    ledger.search(SUB, task="take one number from another", tokens=90)
    ledger.call(ADD)
    ledger.call(SUB)
    assert ledger.told() == [("calc__sub", "discovery", "take one number from another", 1, 1, 90)]
    ledger.search(MAIL, task="send a letter to somebody", tokens=30)
    ledger.call(MAIL)
    assert [each[4:] for each in ledger.told()] == [(1, 90), (1, 30)]


def test_searches_in_vain_are_misses_of_their_own_and_their_cost_is_that_of_the_tool_found_in_the_end() -> None:
    ledger = Ledger()
    ledger.search(ADD, task="take away", tokens=198, ranked=(ADD, MAIL, SUB))
    assert ledger.told() == [], "nobody knows yet what it was for"
    ledger.search(ADD, MAIL, task="remove one from another", tokens=476, ranked=(ADD, MAIL, SUB))
    assert ledger.told() == [("", "search", "take away", 0, 1, 198)]
    ledger.search(SUB, task="subtract", tokens=550)
    ledger.call(SUB)
    assert ledger.told() == [
        ("calc__sub", "search", "take away", 3, 0, 0),
        ("calc__sub", "search", "remove one from another", 3, 0, 0),
        ("calc__sub", "discovery", "subtract", 1, 3, 1224),
    ]
    assert [each.recovered for each in ledger.misses] == ["discovered"] * 3
    assert [each.cause for each in ledger.misses[:2]] == ["rank", "rank"]


@requirement("miss:search")
def test_a_call_of_what_the_search_before_it_did_not_show_is_a_miss_of_that_search() -> None:
    ledger = Ledger()
    ledger.search(ADD, task="take away", tokens=198, ranked=(ADD, SUB))
    ledger.call(SUB)
    (miss,) = ledger.misses
    assert ledger.told() == [("calc__sub", "search", "take away", 2, 1, 198)]
    assert (miss.discovery, miss.exposure, miss.recovered) == (1, 7, "called")


@requirement("miss:search")
def test_a_call_ends_the_search_that_led_to_it_and_is_no_miss_of_earlier_searches() -> None:
    ledger = Ledger()
    ledger.search(ADD, SUB, task="sum up these figures")
    ledger.search(ADD, MAIL, task="book a table for two tonight", level="low")
    ledger.search(MAIL, ADD, task="tell Ada about it by mail")
    ledger.search(SUB, ADD, task="open an issue", level="low")
    ledger.call(ADD)
    hidden = [each for each in ledger.misses if each.kind == "tool" and each.noticed == "discovery"]
    assert [(each.tool, each.query) for each in hidden] == [("calc__add", "book a table for two tonight")]
    assert [(each.tool, each.query) for each in ledger.misses if each.noticed == "search"] == [
        ("", "sum up these figures"),
        ("", "tell Ada about it by mail"),
    ]
    ledger.call(MAIL)
    assert [each.query for each in ledger.misses if each.noticed == "search"] == ["sum up these figures"]
    ledger.call(ADD)
    assert [each.query for each in ledger.misses if each.noticed == "search"] == [], "called again for the other search"


def test_a_client_without_a_list_misses_nothing() -> None:
    made = Session(SessionRecord("k", "foretool call", "1", "legacy", "stdio", "", 1.0), has_list=False)
    assert made.discovered(found(SUB, task="subtract"), 1, 40) == Settled()
    assert made.discovered(found(task="another thing"), 2, 40) == Settled()


@pytest.mark.parametrize(
    "more",
    [
        {"names": (SUB.id,), "task": ""},
        {"task": "count", "sufficiency": 0.9},
    ],
    ids=["asks for what was shown by name", "says that what was shown suffices"],
)
def test_a_search_whose_answer_served_is_no_miss_when_another_follows(more: dict[str, Any]) -> None:
    ledger = Ledger()
    ledger.search(ADD, SUB, task="count")
    ledger.search(SUB, **more)
    assert ledger.told() == []


@requirement("miss:search")
@pytest.mark.parametrize("ending", ["another task", "a prompt", "the end", "half an hour"])
def test_the_last_search_for_something_is_a_miss_once_nothing_can_follow(ending: str) -> None:
    ledger = Ledger()
    ledger.search(ADD, task="count")
    ledger.call(ADD)
    ledger.search(MAIL, task="write to Ada")
    on_record = len(ledger.misses)
    ledger.take(ledger.session.rest(900.0))
    assert len(ledger.misses) == on_record, "it may still be called"
    if ending == "a prompt":
        ledger.session.conversations.whole.note_prompt(("another thing",), 3.0)
    if ending in ("another task", "a prompt"):
        ledger.search(SUB, task="another thing altogether")
    ledger.take(ledger.session.end() if ending == "the end" else ledger.session.rest(2000.0))
    vain = [each for each in ledger.misses if each.query == "write to Ada"]
    assert [(each.kind, each.noticed, each.cause, each.turns) for each in vain] == [("search", "search", "unused", 1)]
    assert ledger.session.rest(9000.0) == ledger.session.end() == Settled(), "once"
    ledger.call(MAIL, at=9000.0)
    assert [(each.tool, each.noticed) for each in ledger.misses if each.query == "write to Ada"] == [
        ("mail__send", "discovery")
    ], "it was no miss of the search after all"


def test_what_we_search_for_a_wrong_name_is_no_search_of_the_client_and_takes_nothing_from_one() -> None:
    ledger = Ledger()
    ledger.search(SUB, task="take one from another")
    ledger.take(ledger.session.discovered(found(SUB, ADD), 2, 40, is_ours=True))
    ledger.call(SUB)
    ledger.take(ledger.session.end())
    assert ledger.told() == [("calc__sub", "discovery", "take one from another", 1, 1, 50)]


def test_a_call_that_comes_to_nothing_has_no_task_that_nobody_wrote_for_it() -> None:
    ledger = Ledger()
    ledger.search(ADD, task="count")
    made = ledger.session
    in_vain = [made.unknown("order_pizza", [], 1.0), *refused(made, MAIL, "offline"), *refused(made, SUB, "denied")]
    assert [each.query for each in in_vain] == [""] * 3


@requirement("miss:exposure")
def test_the_list_of_a_miss_is_the_one_that_lacked_the_tool_however_it_has_grown_since() -> None:
    ledger = Ledger(ADD.id)
    made = ledger.session
    ledger.search(SUB, task="subtract")
    made.list.grow([SUB.id], found=True)
    made.list.deliver()
    made.list.give(view(ADD.id), 8)
    ledger.call(SUB)
    assert [(each.tool, each.exposure) for each in ledger.misses] == [("calc__sub", 7)]
    ledger.search(SUB, task="subtract")
    ledger.call(SUB)
    assert len(ledger.misses) == 1, "it is on the list by now"


def test_a_native_call_belongs_to_the_chat_whose_search_showed_its_tool() -> None:
    made = session()
    chat = made.conversations.of(made.conversations.handle_for(made.conversations.whole, 1))
    made.conversations.of(chat.handle).opened_by = 0
    made.discovered(found(SUB, task="subtract"), 3, 40, chat)
    assert made.conversations.place_call(SUB.id, None) is chat
    assert made.conversations.place_call(ADD.id, None) is None


@requirement("windows:failover")
def test_what_was_searched_for_before_another_proxy_costs_what_it_would_have_cost() -> None:
    """A search in vain, a call of something else, and a search whose tool is called at the next proxy."""
    stays, goes = Ledger(ADD.id), Ledger(ADD.id)
    for ledger in (stays, goes):
        ledger.search(MAIL, task="send a mail")
        ledger.call(ADD, at=1.5)
        ledger.search(SUB, task="subtract")
    searches = [changed(found(MAIL, task="send a mail"), id=1), changed(found(SUB, task="subtract", at=2.0), id=2)]
    calls = [Call("k", 1.5, ADD.id, "calc", "name", False, "ok", 1.0, True, "")]
    goes.session = session(ADD.id)
    for event in (searches[0], *calls, searches[1]):
        goes.session.recall(event)
    goes.session.recall_misses(goes.misses)
    for ledger in (stays, goes):
        ledger.call(SUB, at=3.0)
    assert goes.told() == stays.told()
    assert [(each.noticed, each.turns, each.tokens) for each in goes.misses] == [
        ("search", 1, 50),
        ("discovery", 1, 50),
    ]


@requirement("windows:failover")
def test_a_refused_call_leaves_no_trace_in_the_conversation_at_another_proxy_either() -> None:
    goes = session(ADD.id)
    for tool, outcome in ((ADD, "ok"), (SUB, "refused")):
        goes.recall(Call("k", 1.5, tool.id, "calc", "name", False, outcome, 1.0, True, ""))
    goes.recall_misses([])
    assert list(goes.conversations.whole.history) == [ADD.id]


@requirement("windows:failover")
def test_what_hints_named_counts_in_a_chat_of_another_proxy_though_nothing_was_called_lately() -> None:
    goes = session(ADD.id)
    goes.conversations.whole.hinted.add(SUB.id)
    goes.recall_misses([])
    chat = goes.conversations.of("a-handle-of-that-proxy")
    assert called(goes, SUB, "bridge", 1.0, chat)[0] == []
