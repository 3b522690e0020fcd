"""Decisions of one conversation, as values."""

from __future__ import annotations

from fakes import changed
from msgspec.json import decode, encode

from foretool.server.clients.exposure import View
from foretool.server.clients.session import HISTORY, MOST_CONVERSATIONS, MOST_MEMO, Forward, Session, SessionMemo
from foretool.storage.records import Discovery, Match, Miss, SessionRecord, Tool, ToolId

ADD = Tool(ToolId("calc__add"), "calc", "add", b"{}", "h")
SUB = Tool(ToolId("calc__sub"), "calc", "sub", b"{}", "h")
MAIL = Tool(ToolId("mail__send"), "mail", "send", b"{}", "h")
RECORD = SessionRecord("k", "c", "1", "legacy", "stdio", "", 0.0)


def view(*tools: ToolId) -> View:
    return View("frozen", 1, tools, frozenset(tools), b"[]", 0, 2000, 0.0)


def session(*shown: ToolId) -> Session:
    made = Session(RECORD)
    made.set_list(view(*shown), 7)
    return made


def found(*tools: Tool, task: str = "") -> Discovery:
    matches = tuple(Match(tool.id, rank, 1.0) for rank, tool in enumerate(tools, 1))
    return Discovery("k", 1.0, task, (), None, "high", matches, 50, 1.0)


def test_a_listed_tool_is_forwarded_without_a_miss() -> None:
    assert session(ADD.id).call(ADD, "name", 1.0) == ([], Forward(ADD, False, 0))


def test_a_hidden_tool_is_forwarded_and_missed_once_a_list() -> None:
    conversation = session(ADD.id)
    (miss,), forward = conversation.call(SUB, "bridge", 1.0)
    assert forward == Forward(SUB, True, 0)
    assert isinstance(miss, Miss)
    assert (miss.tool, miss.noticed, miss.exposure, miss.recovered) == ("calc__sub", "bridge", 7, "called")
    assert conversation.call(SUB, "bridge", 2.0) == ([], Forward(SUB, True, 0))


def test_what_a_discovery_found_is_missed_with_its_rank_and_task() -> None:
    conversation = session()
    assert conversation.discovered(found(ADD, SUB, task="subtract"), 3, 40) == []
    (miss,), forward = conversation.call(SUB, "name", 1.0)
    assert forward == Forward(SUB, True, 3)
    assert isinstance(miss, Miss)
    assert (miss.noticed, miss.rank, miss.of, miss.query) == ("discovery", 2, 40, "subtract")
    assert (miss.discovery, miss.turns, miss.tokens, miss.recovered) == (3, 1, 50, "discovered")


def test_a_discovery_without_a_match_is_a_miss_of_its_own() -> None:
    (miss,) = session().discovered(changed(found(task="fly"), names=("x",)), 3, 40)
    assert (miss.tool, miss.noticed, miss.query, miss.of, miss.discovery) == ("x", "nothing_found", "fly", 40, 3)


def test_a_call_before_any_list_is_hidden() -> None:
    (miss,), _ = Session(RECORD).call(ADD, "name", 1.0)
    assert isinstance(miss, Miss)
    assert (miss.cause, miss.exposure) == ("unknown", 0)


def test_the_history_is_the_latest_calls_and_the_servers_in_use_the_latest_first() -> None:
    conversation = session(ADD.id, SUB.id, MAIL.id)
    for tool in (ADD, MAIL, ADD):
        conversation.call(tool, "name", 1.0)
    whole = conversation.conversation()
    assert list(whole.history) == [ADD.id, MAIL.id, ADD.id]
    assert whole.servers_in_use() == ("calc", "mail")
    for _ in range(HISTORY):
        conversation.call(SUB, "name", 1.0)
    assert set(whole.history) == {SUB.id}


def test_a_session_keeps_the_conversations_heard_of_last() -> None:
    made = session(ADD.id)
    handles = [made.handle_for(made.conversation(), 1) for _ in range(MOST_CONVERSATIONS)]
    assert len(set(handles)) == MOST_CONVERSATIONS
    oldest = made.conversation(handles[0])
    made.call(ADD, "name", 1.0, oldest)
    made.handle_for(made.conversation(), 1)
    assert made.conversation(handles[0]) is oldest
    assert made.conversation(handles[1]).opened_by == 0


def test_names_that_lead_nowhere_are_misses_that_say_what_would_help() -> None:
    conversation = session()
    unknown = conversation.unknown("calc__ad", [ADD.id], 1.0)
    assert (unknown.noticed, unknown.cause, unknown.recovered) == ("unknown_name", "unknown", "suggested")
    (denied,) = conversation.denied(MAIL, "bridge", "add its server", 1.0)
    assert (denied.noticed, denied.cause, denied.change) == ("bridge", "denied", "add its server")
    assert conversation.denied(MAIL, "name", "add its server", 2.0) == [], "once for each list"
    assert list(conversation.conversation().history) == []
    unreachable = conversation.unreachable("mail__send", "mail", "bridge", 1.0)
    assert (unreachable.noticed, unreachable.cause, unreachable.recovered) == ("bridge", "offline", "no")


def test_a_call_of_a_tool_that_a_hint_or_the_list_had_named_is_hidden_and_no_miss() -> None:
    conversation = session(ADD.id)
    chat = conversation.conversation()
    chat.note_hint([SUB.id])
    assert conversation.call(SUB, "bridge", 1.0) == ([], Forward(SUB, True, 0))
    # A hint that came before a discovery of the same task keeps its merit; in a later task the discovery counts.
    conversation.discovered(found(SUB, task="subtract"), 3, 40)
    assert conversation.call(SUB, "bridge", 1.0)[0] == []
    chat.note_prompt(("another thing",), 2.0)
    conversation.discovered(found(SUB, task="another thing"), 4, 40)
    assert [each.discovery for each in conversation.call(SUB, "bridge", 3.0)[0]] == [4]
    named = session()
    named.set_list(changed(view(ADD.id), named=(MAIL.id,)), 8)
    assert named.call(MAIL, "bridge", 1.0) == ([], Forward(MAIL, True, 0))


def test_a_session_goes_on_elsewhere_as_it_was_left() -> None:
    before = session(ADD.id)
    before.discovered(found(SUB, task="subtract"), 3, 40)
    before.call(MAIL, "name", 1.0)
    before.agree(ADD)
    before.grow([SUB.id], found=True)
    memo = decode(encode(before.memo()), type=SessionMemo)
    after = Session(memo.record)
    after.resume(memo)
    after.set_list(view(ADD.id), memo.exposure)
    assert after.record == before.record
    assert after.has_agreed(ADD) and after.lists(SUB.id) and not after.sees(SUB.id)
    # The same miss is not counted again, and what was found there is known here.
    assert after.call(MAIL, "name", 2.0) == ([], Forward(MAIL, True, 0))
    (miss,), forward = after.call(SUB, "name", 2.0)
    assert (miss.noticed, miss.query, forward.discovery) == ("discovery", "subtract", 3)
    assert after.memo().chat.missed != before.memo().chat.missed


def test_a_memo_stays_small_however_much_was_found() -> None:
    long = session()
    for place in range(3 * MOST_MEMO):
        long.discovered(found(Tool(ToolId(f"s__t{place}"), "s", f"t{place}", b"{}", "h"), task="x"), place, 40)
    assert list(long.memo().chat.found) == [f"s__t{place}" for place in range(2 * MOST_MEMO, 3 * MOST_MEMO)]
