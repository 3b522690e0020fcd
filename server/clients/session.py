"""One session of a client, without I/O: what it was shown, what it called, and what it missed.

A method takes what happened and returns decisions as values. The caller carries them out and records them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.clients.conversation import ChatMemo, Conversation, Conversations, FoundTool
from foretool.server.clients.pursuit import Need, Pursuit, RecentSearch, Settled, UnsettledPursuits
from foretool.server.lists.growth import SessionList
from foretool.server.lists.hidden import HiddenTools, Why
from foretool.server.recording.calibration import SUFFICES
from foretool.storage.episodes import GAP_S, are_alike
from foretool.storage.records import (
    UNNAMED,
    UNSERVED,
    Call,
    Cause,
    Discovery,
    Exposure,
    Match,
    Miss,
    Noticed,
    Policy,
    Recovered,
    SessionRecord,
    Tool,
    ToolId,
)

Via = Literal["name", "bridge"]

_RANKED: Final = 50
"""Tools that a search ranked and that are remembered until the next searches say what it was for."""
_MOST_REFUSED: Final = 200
"""Calls that did not run and that a later call may make up for."""


class Forward(Struct, frozen=True):
    """The decision that a call goes to its upstream."""

    tool: Tool
    hidden: bool
    discovery: int
    """Id of the discovery that found it, 0 if none did."""


class Missed(Struct, frozen=True):
    """A running call of a tool that the client did not see, with the search that it belongs to."""

    pursuit: Pursuit
    need: Need


class Lookup(Struct, frozen=True):
    """The result of a search by names alone."""

    is_found: bool
    """Whether one of the names is that of a tool which it showed, or of a skill."""
    cause: Cause = "unknown"
    change: str = UNNAMED
    """Why it showed none of them, and what would have helped."""


class SessionMemo(Struct, frozen=True, omit_defaults=True):
    """The state of a session, as another replica needs it to continue the session."""

    record: SessionRecord
    exposure: int = 0
    policy: Policy | None = None
    list_policy: Policy | None = None
    delivered: int = 0
    grown: list[ToolId] = []
    grown_found: list[ToolId] = []
    agreed: list[tuple[str, str, str]] = []
    chat: ChatMemo = ChatMemo()


class MissWriter:
    """Writes the misses of a session: why the tool was hidden, and what its conversation had called before."""

    def __init__(self, session: str, shown: SessionList, hidden: HiddenTools | None) -> None:
        """`session`: its key; `hidden` says why lists lack tools."""
        self._session = session
        self._list = shown
        self._hidden_tools = hidden

    def _explain(self, tool: Tool) -> Why | None:
        """Return why a tool is hidden, as far as the list that lacked it knows."""
        view = self._list.lacking(tool.id)
        if view is None or self._hidden_tools is None:
            return None
        return self._hidden_tools.why(view, tool.id, tool.upstream)

    def of_found(self, tool: Tool, at: float, found: FoundTool, chat: Conversation) -> Miss:
        """Return the miss of a tool that a search has shown, without its cost."""
        cause, change = self._explain_hidden(tool)
        return self.write(
            chat, tool.id, at, "discovery", cause, change, recovered="discovered", rank=found.rank, of=found.of,
            query=found.task, discovery=found.discovery, parts=found.parts, exposure=found.exposure,
        )  # fmt: skip

    def of_hidden(self, tool: Tool, via: Via, at: float, chat: Conversation) -> Miss:
        """Return the miss of a tool that no search has shown. An earlier task need not be what the call is for, so it
        has no query."""
        why = self._explain(tool)
        cause, change = self._explain_hidden(tool)
        noticed: Noticed = "bridge" if via == "bridge" else "call"
        more: dict[str, Any] = {"rank": why.rank, "of": why.of} if why else {}
        return self.write(chat, tool.id, at, noticed, cause, change, recovered="called", **more)

    def _explain_hidden(self, tool: Tool) -> tuple[Cause, str]:
        if self._list.gained_unseen(tool.id):
            return "stale", "none: the list has gained it, and the client has not fetched the list since"
        why = self._explain(tool)
        return (why.cause, why.change) if why is not None else ("unknown", "")

    def write(
        self, chat: Conversation, tool: str, at: float, noticed: Noticed, cause: Cause, change: str, **more: Any
    ) -> Miss:
        given = {"rank": 0, "of": 0, "query": "", "discovery": 0, "recovered": "no", "turns": 0, "tokens": 0}
        given["exposure"] = self._list.exposure
        return Miss(
            session=self._session, at=at, tool=tool, noticed=noticed, cause=cause, change=change,
            history=tuple(chat.history), **{**given, **more},
        )  # fmt: skip


class Session:
    """Decides what the calls and discoveries of one client mean, and which of them are misses."""

    def __init__(
        self, record: SessionRecord, hidden: HiddenTools | None = None, *, shows_pages: bool = False,
        has_list: bool = True,
    ) -> None:  # fmt: skip
        """`hidden` explains misses; without it they have no cause. `has_list`: False for a client that never lists,
        from which no list hides a tool."""
        self.record = record
        self.list = SessionList(record, shows_pages=shows_pages)
        self._misses = MissWriter(record.key, self.list, hidden)
        self.has_list = has_list
        self.told_absent: set[str] = set()
        """Servers of which an answer has said that they are down, and a mark once one asked for English."""
        self._refused: dict[tuple[str, str], Missed] = {}
        """By conversation and tool: calls that did not run. One that runs later makes up for it."""
        self._agreed: set[tuple[str, str, str]] = set()
        """Tools that the user agreed to run, each with the definition that was agreed to."""
        self._bypassed: set[tuple[int, ToolId]] = set()
        """Tools that a command of the client's shell went round, with the list that the client had."""
        self.conversations = Conversations()
        self._unsettled = UnsettledPursuits()
        self._searched_at = 0.0
        """When it searched last; 0 if it has not since it ended or was idle."""

    # -- with other replicas

    def memo(self) -> SessionMemo:
        shown = self.list
        return SessionMemo(
            self.record, max(shown.exposure, 0), shown.policy, shown.first_policy, shown.delivered, list(shown.grown),
            sorted(shown.found), sorted(self._agreed), self.conversations.whole.memo(),
        )  # fmt: skip

    def resume(self, memo: SessionMemo) -> None:
        """Record what happened at another replica. Which list the client was given is `ToolList.resume`'s to say."""
        self.list.policy, self.list.first_policy = memo.policy, memo.list_policy
        self.list.delivered, self.list.grown = memo.delivered, list(memo.grown)
        self.list.found.update(memo.grown_found)
        self._agreed.update(memo.agreed)
        self.conversations.whole.resume(memo.chat)

    def recall(self, event: Exposure | Discovery | Call) -> None:
        """Note what another proxy has recorded of this session, one event after the other: that a text named tools,
        that the client searched, or that it called a tool. A list is `ToolList.recall`'s to note."""
        chat = self.conversations.whole
        if isinstance(event, Exposure):
            if event.reason == "prompt":
                chat.note_prompt((), event.at)
            chat.note_hint(tool for tool in event.tools if not self.list.sees(tool))
        elif isinstance(event, Call):
            if event.via == "name" and self.list.is_for_page(event.tool):
                return
            chat.pursuit_of(event.discovery).use([event.tool], event.discovery)
            if event.outcome != "refused":
                chat.note_call(event.tool, event.upstream, event.at)
        else:
            chat.note_task(tuple(event.task.splitlines()), event.at)
            matches = [match.tool for match in event.matches]
            self.discovered(event, event.id, len(matches), chat, ranked=matches)

    def recall_misses(self, misses: Sequence[Miss]) -> None:
        """Note what was missed, once all that was searched for and called is recalled. A search is in vain only if that
        is on record, and a call of what it showed takes that back."""
        chat = self.conversations.whole
        self.conversations.are_recalled = True
        rows = {miss.discovery: miss for miss in misses if miss.noticed in ("search", "nothing_found")}
        for pursuit in chat.pursuits:
            for recent in pursuit.searches:
                recent.row = rows.get(recent.id)
                recent.is_used = recent.row is None
        for miss in misses:
            if miss.noticed == "discovery":
                need = Need(replace(miss, turns=0, tokens=0), is_found=True, is_recorded=True, row=miss)
                chat.pursuit_of(miss.discovery).needs.append(need)

    # -- what the user agreed to

    def agree(self, tool: Tool) -> None:
        """Note that the user lets a tool run for the rest of the session, as it is defined now."""
        self._agreed.add((tool.upstream, tool.name, tool.schema_hash))

    def has_agreed(self, tool: Tool) -> bool:
        return (tool.upstream, tool.name, tool.schema_hash) in self._agreed

    # -- decisions

    def call(self, tool: Tool, via: Via, at: float, chat: Conversation | None = None) -> tuple[Missed | None, Forward]:
        """Decide what a call means. It always goes through. A tool that the client did not see is a miss: once for each
        search that found it, else once a list. So is a tool that the list gained because a search found it. One that
        a hint or the list had named before is not. A miss is recorded with its call: see `settle`."""
        if via == "name" and self.list.is_for_page(tool.id):
            return None, Forward(tool, hidden=False, discovery=0)  # a page calls it, and no model learns of that
        chat = chat or self.conversations.whole
        if not self.has_list:
            chat.note_call(tool.id, tool.upstream, at)
            return None, Forward(tool, hidden=False, discovery=0)
        missed = self._miss_of(tool, via, at, chat)
        if (refused := self._refused.pop((chat.handle, tool.id), None)) is not None:
            missed = missed if missed is not None and missed.need.is_found else None  # else it is the same need
            way: Recovered = "discovered" if refused.need.is_found else "called"
            refused.need.miss = replace(refused.need.miss, recovered=way)
            self._unsettled.add(refused.pursuit)
        found = chat.found.get(tool.id)
        if missed is not None:
            missed.pursuit.needs.append(missed.need)
        chat.note_call(tool.id, tool.upstream, at)
        is_hidden = not (self.list.sees(tool.id) or self.list.keeps(tool.id))
        return missed, Forward(tool, is_hidden, found.discovery if found is not None else 0)

    def _miss_of(self, tool: Tool, via: Via, at: float, chat: Conversation) -> Missed | None:
        """Return the miss that a call of a tool is, None if it is none. The search that led to it was not in vain."""
        found = chat.found.get(tool.id)
        is_unknown = not (self.list.sees(tool.id) or self.list.names(tool.id) or self.list.keeps(tool.id))
        discovery = found.discovery if found is not None else 0
        pursuit = chat.pursuit_of(discovery)
        self._use(tool.id, discovery, pursuit, chat)
        if found is not None:
            if (found.was_hidden or is_unknown) and not pursuit.has_missed(tool.id, discovery, chat.handle):
                miss = self._misses.of_found(tool, at, found, chat)
                return Missed(pursuit, Need(miss, is_found=True, handle=chat.handle))
        elif is_unknown and not (tool.id in chat.hinted or (self.list.exposure, tool.id) in chat.missed):
            # Once it knows a name, a client calls it again and again: that cost it nothing more.
            chat.missed.add((self.list.exposure, tool.id))
            present = chat.pursuits[-1] if chat.pursuits and at - chat.last_at <= GAP_S else None
            searched = present if present is not None and present.is_open and not present.is_over else Pursuit()
            return Missed(searched, Need(self._misses.of_hidden(tool, via, at, chat), is_found=False))
        return None

    def _use(self, tool: str, discovery: int, pursuit: Pursuit, chat: Conversation) -> None:
        """Note that a tool is called that a search of a pursuit, or the latest one, has shown."""
        if not chat.pursuits:
            return
        latest = chat.pursuits[-1]
        for each in (pursuit, latest) if latest is not pursuit else (pursuit,):
            if each.use([tool], discovery):
                self._unsettled.add(each)

    def call_in_vain(self, tool: Tool, via: Via, at: float, chat: Conversation | None = None) -> Missed | None:
        """Decide on a call that no rule forbids and that does not run: its arguments are wrong, or the user said no. It
        is a miss where the same call would be one that runs."""
        if not self.has_list or (via == "name" and self.list.is_for_page(tool.id)):
            return None
        chat = self.conversations.place_call(tool.id, chat) or self.conversations.whole
        if (missed := self._miss_of(tool, via, at, chat)) is None:
            return None
        missed.need.miss = replace(missed.need.miss, recovered="no")
        return self._keep_refused(missed, tool.id, chat)

    def refuse(
        self, tool: ToolId, server: str, via: Via, cause: Cause, change: str, at: float,
        chat: Conversation | None = None,
    ) -> Missed | None:  # fmt: skip
        """Decide on a call that a rule forbids, or whose server is not there. The tool is missed once for each search
        that led to it, else once a list, whether the list has it or not. The call leaves no trace in the conversation,
        so nothing is predicted from it. `change` would let it through."""
        if not self.has_list:
            return None
        chat = self.conversations.place_call(tool, chat) or self.conversations.whole
        found = chat.found.get(tool)
        search = None if found is not None else chat.search_that_blames(tool, server, cause)
        discovery = found.discovery if found is not None else search.id if search is not None else 0
        pursuit = chat.pursuit_of(discovery)
        self._use(tool, discovery, pursuit, chat)
        missed_before = (self.list.exposure, tool) in chat.missed
        if pursuit.has_missed(tool, discovery, chat.handle) if discovery else missed_before:
            return None
        chat.missed.add((self.list.exposure, tool))
        more: dict[str, Any] = {"discovery": discovery}
        if found is not None:
            more |= {"rank": found.rank, "of": found.of, "query": found.task, "parts": found.parts}
        elif search is not None:
            more |= {"of": search.miss.of, "query": search.miss.query}
        noticed: Noticed = "bridge" if via == "bridge" else "call"
        miss = self._misses.write(chat, tool, at, noticed, cause, change, turns=1, **more)
        return self._keep_refused(Missed(pursuit, Need(miss, bool(discovery), chat.handle)), tool, chat)

    def _keep_refused(self, missed: Missed, tool: str, chat: Conversation) -> Missed:
        missed.pursuit.needs.append(missed.need)
        self._refused[chat.handle, tool] = missed
        if len(self._refused) > _MOST_REFUSED:
            del self._refused[next(iter(self._refused))]
        return missed

    def settle(self, missed: Missed | None = None) -> Settled:
        """Note that a call is over. Returns what has to be written: its own miss, and misses of earlier searches and
        calls that are certain by now."""
        if missed is not None:
            missed.need.is_recorded = True
            self._unsettled.add(missed.pursuit)
        return self._unsettled.settle()

    def discovered(
        self, discovery: Discovery, id: int, of: int, chat: Conversation | None = None, unlisted: str = "",
        ranked: Sequence[ToolId] = (), matching: int = 0, left_out: bool = False, told: Iterable[ToolId] = (),
        nearest: Sequence[Match] = (), is_step: bool = False, by_words: bool = False, is_ours: bool = False,
        skills: Iterable[str] = (), absent: Iterable[str] = (), lookup: Lookup | None = None,
    ) -> Settled:  # fmt: skip
        """Handle an answer of `discover_tools`, recorded as `id`, over `of` tools. It is a miss when it found none;
        so is the search before it that led to no call.

        `unlisted`: what is to be done about servers whose tools were not known yet and that probably have what it was
        for, or ""; `ranked`: the tools that the search ranked, best first; `matching`: how many it found before the
        gate; `left_out`: a rule or the profile leaves out every tool that it found; `told`: the matches whose arguments
        the answer shows, which no hint has to name; `nearest`: what it names although none is likely to fit; `is_step`:
        it is what an agent framework got for a step, and says nothing of the steps before it; `by_words`: words alone
        decided, because tools were still being embedded; `is_ours`: the client called a name that no tool has, which is
        a miss already, and we searched for its words; `skills`: the URIs of those that the answer offers; `absent`: the
        servers that are not there and could have what it was for; `lookup`: what came of a search by names alone.
        """
        chat = chat or self.conversations.whole
        if not self.has_list:
            return Settled()
        named_before = chat.hinted & chat.told.keys()
        shown = discovery.matches or nearest
        pursuit = self._pursue_aside(chat) if is_ours else self._pursue(discovery, chat, lookup, is_step=is_step)
        for match in shown:
            is_seen = self.list.sees(match.tool)
            # Else a hint came first, or the list has the tool because an earlier search showed it, or an earlier search
            # of this pursuit, for something else, fits it better.
            if (
                match.tool not in named_before
                and not (is_ours and match.tool in chat.found)
                and not (is_seen and match.tool in chat.found)
                and not _fits_better(chat.found.get(match.tool), match, discovery.task, pursuit)
            ):
                was_hidden = not (is_seen or is_step or self.list.names(match.tool))
                chat.found[match.tool] = FoundTool(
                    id, match.rank, of, discovery.task, match.parts, was_hidden, self.list.exposure
                )
        told = tuple(told)
        chat.told.update(dict.fromkeys(told))
        if lookup is None and not (is_ours and chat.named):  # a name that is looked up does not say for what
            chat.note_named(told)
        if lookup is not None and (discovery.matches or not unlisted):
            cause, change = lookup.cause, lookup.change
        else:
            cause, change = _explain_search(discovery, unlisted, matching, left_out, by_words)
        name = discovery.names[0] if discovery.names and (lookup is not None or not discovery.matches) else ""
        noticed: Noticed = "search" if discovery.matches else "nothing_found"
        more: dict[str, Any] = {"of": of, "query": discovery.task, "discovery": id}
        miss = self._misses.write(chat, name, discovery.at, noticed, cause, change, **more)
        # Nobody searches again for want of the tools of a step: it widens. Who looks up a name may only want to read.
        serves = is_ours or (is_step and bool(shown)) or (lookup is not None and lookup.is_found)
        names = frozenset(discovery.names) if lookup is not None else frozenset[str]()
        offered = frozenset((*(match.tool for match in shown), *skills))
        search = RecentSearch(
            miss, discovery.tokens, offered, tuple(ranked[:_RANKED]), serves, names, frozenset(absent)
        )  # fmt: skip
        pursuit.searches.append(search)
        self._unsettled.add(pursuit)
        self._searched_at = discovery.at
        return self._unsettled.settle()

    def read_skill(self, uri: str) -> None:
        """Note that the client reads a skill: the search that offered it was not in vain."""
        for chat in self.conversations:
            for pursuit in chat.pursuits:
                if pursuit.use([uri]):
                    self._unsettled.add(pursuit)

    def rest(self, now: float) -> Settled:
        """Return what has to be written once the session has not searched for `GAP_S`; nothing before."""
        return self.end() if self._searched_at and now - self._searched_at > GAP_S else Settled()

    def end(self) -> Settled:
        """Return what has to be written at the end of the session: the latest searches too that led to no call. One
        search and nothing else is what a program does that starts anew for each request: it may call in the next."""
        self._searched_at = 0.0
        pursuits = {
            id(pursuit): pursuit for chat in self.conversations for pursuit in chat.pursuits
        }  # chats may share one
        if (
            any(chat.history for chat in self.conversations)
            or sum(len(each.searches) for each in pursuits.values()) > 1
        ):
            for pursuit in pursuits.values():
                self._unsettled.close(pursuit)
        return self._unsettled.settle()

    def recount(self, discovery: int, tokens: int, chat: Conversation) -> Settled:
        """Replace the estimated tokens of a search's answer by the counted ones."""
        pursuit = chat.pursuit_of(discovery)
        pursuit.recount(discovery, tokens)
        return pursuit.settle()

    def _pursue_aside(self, chat: Conversation) -> Pursuit:
        """Return a pursuit of a search of ours; the client's own one goes on."""
        present = [chat.pursuits.pop()] if chat.pursuits else []
        chat.pursuits.extend([aside := Pursuit(), *present])
        return aside

    def _pursue(self, discovery: Discovery, chat: Conversation, lookup: Lookup | None, *, is_step: bool) -> Pursuit:
        """Return the pursuit that a search belongs to, and what the search says of those before it."""
        present = chat.pursuits[-1] if chat.pursuits else Pursuit()
        is_new_chat = not chat.handle and self.conversations.passes_handles
        goes_on = present.goes_on(discovery.task, discovery.at, has_called=chat.has_called)
        chat.has_called = False
        if is_step or is_new_chat:
            chat.pursuits.append(Pursuit())
            return chat.pursuits[-1]
        if lookup is not None:
            present.use(list(map(ToolId, discovery.names)))
        elif goes_on and discovery.sufficiency is not None and discovery.sufficiency >= SUFFICES:
            present.searches[-1].is_used = True
        if not goes_on:
            self._unsettled.close(present)
            chat.pursuits.append(Pursuit())
        return chat.pursuits[-1]

    def unknown(self, name: str, candidates: Sequence[ToolId], at: float, chat: Conversation | None = None) -> Miss:
        """Decide on a call of a name that no upstream has. A search that showed what it may mean was not in vain."""
        for tool in candidates:
            placed = self.conversations.place_call(tool, chat) or self.conversations.whole
            if (found := placed.found.get(tool)) is not None:
                self._use(tool, found.discovery, placed.pursuit_of(found.discovery), placed)
        change = f"the client may mean {candidates[0]}" if candidates else UNNAMED
        recovered = "suggested" if candidates else "no"
        chat = chat or self.conversations.whole
        return self._misses.write(chat, name, at, "unknown_name", "unknown", change, recovered=recovered, turns=1)

    def bypassed(self, tool: Tool, words: str, at: float, rank: int, of: int) -> Miss | None:
        """Decide on a command of the client's shell that did what a tool does: the tool is missed once for each list,
        whether the list has it or not. `words`: the command, in shape."""
        key = (self.list.exposure, tool.id)
        if key in self._bypassed:
            return None
        self._bypassed.add(key)
        change = f"pin {tool.id}, so that the model sees it before it types the command"
        if self.list.sees(tool.id):
            change = f"say in the description of {tool.id} that it does what the command does"
        more: dict[str, Any] = {"rank": rank, "of": of, "query": words, "recovered": "shell"}
        return self._misses.write(self.conversations.whole, tool.id, at, "shell", "bypass", change, **more)


def _fits_better(known: FoundTool | None, match: Match, task: str, pursuit: Pursuit) -> bool:
    """Return whether a search of the same pursuit, for another task, has ranked a tool higher."""
    if known is None or not pursuit.holds(known.discovery):
        return False
    return known.rank < match.rank and not are_alike(known.task, task)


def _explain_search(
    discovery: Discovery, unlisted: str, matching: int, left_out: bool, by_words: bool
) -> tuple[Cause, str]:
    """Return why a search did not show what was needed, as far as that is known at once."""
    is_by_name = bool(discovery.names) and not discovery.matches
    if left_out and matching and not is_by_name:
        change = (
            "a rule or the profile leaves out the tools that fit; foretool search for this task says which,"
            " with --tool and a tool's name"
        )
        return "denied", change
    if unlisted and not discovery.matches:
        return "offline", unlisted
    if by_words:
        change = "none: words alone decided, because search by meaning was still being prepared; later searches have it"
        return "preparing", change
    if discovery.matches:
        return "unused", UNSERVED if discovery.level in ("low", "none") else "not known"
    if matching and not is_by_name:
        change = "describe the task in the words of the tool, or describe its server (server setting `description`)"
        return "gate", change
    return "unknown", (
        "add a server that has such a tool, or describe the one that is there (server setting `description`)"
    )
