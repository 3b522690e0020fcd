"""One session of a client, without I/O: what it was shown, what it called, and what it missed.

A method takes what happened and returns decisions as values. The caller carries them out and records them.

One process may serve several chats at once and names none of them in its requests. A chat passes on the handle of a
`discover_tools` answer; a request with a handle belongs to that conversation alone. Requests without a handle belong
to the session as a whole, so a client that passes no handle on is served as if there were none.
"""

from __future__ import annotations

import base64
import os
import re
from collections import deque
from collections.abc import Iterable, Sequence
from math import inf
from typing import Any, Final, Literal

from msgspec import Struct

from foretool.server.clients.exposure import View, Why
from foretool.storage.episodes import GAP_S, are_alike
from foretool.storage.records import Cause, Discovery, Miss, Noticed, Policy, SessionRecord, Tool, ToolId

Via = Literal["name", "bridge"]

HISTORY: Final = 20
MOST_CONVERSATIONS: Final = 64
"""Chats that one session keeps apart. The one that was silent longest goes first, and starts empty if it comes back."""
MOST_UNUSED: Final = 8
"""Handles of a session that were given out and not used; most clients never use one."""

MOST_MEMO: Final = 200
"""Tools of each kind that a memo of a conversation names."""

_handle = re.compile(r"[A-Za-z0-9_-]{22}")


class Forward(Struct, frozen=True):
    """The call goes to the tool's upstream."""

    tool: Tool
    hidden: bool
    discovery: int
    """Id of the discovery that found it, 0 if none did."""


class _Found(Struct, frozen=True):
    discovery: int
    rank: int
    of: int
    task: str
    tokens: int
    parts: dict[str, float]


class ChatMemo(Struct, frozen=True, omit_defaults=True):
    """What another replica needs to know of a conversation, besides what it called itself."""

    found: dict[ToolId, _Found] = {}
    hinted: list[ToolId] = []
    told: list[ToolId] = []
    missed: list[tuple[int, ToolId]] = []
    task: str = ""
    opened_by: int = 0


class SessionMemo(Struct, frozen=True, omit_defaults=True):
    """What another replica needs to know to go on with a session."""

    record: SessionRecord
    exposure: int = 0
    policy: Policy | None = None
    list_policy: Policy | None = None
    delivered: int = 0
    grown: list[ToolId] = []
    grown_found: list[ToolId] = []
    agreed: list[tuple[str, str, str]] = []
    chat: ChatMemo = ChatMemo()


class Conversation:
    """What one chat called and found. The one with the handle "" holds what the session did without a handle."""

    def __init__(self, handle: str = "", opened_by: int = 0, profile: str = "") -> None:
        self.handle = handle
        self.profile = profile
        """The profile of its session."""
        self.opened_by = opened_by
        """Id of the discovery whose answer gave the handle out; 0 once the handle was used."""
        self.history: deque[ToolId] = deque(maxlen=HISTORY)
        self.task = ""
        self.upstreams: deque[str] = deque(maxlen=HISTORY)
        self.steps: list[ToolId] = []
        """Tools called for the present task, repeats in a row once; predictions start from them. A task ends as in
        `storage.episodes`."""
        self.lines: tuple[str, ...] = ()
        """The present task in words."""
        self.last_at = 0.0
        self.answered_at = -inf
        """When the last call was answered, by `time.perf_counter`."""
        self.hinted: set[ToolId] = set()
        """Hidden tools that a hint has named with what their calls need; a call of one is not a miss."""
        self.told: set[ToolId] = set()
        """Hidden tools that an answer or a hint has named in the present task with what their calls need; no hint
        repeats them."""
        self.missed: set[tuple[int, ToolId]] = set()
        """Hidden tools that are on record as missed, with the exposure that lacked them."""
        self.found: dict[ToolId, _Found] = {}

    def memo(self) -> ChatMemo:
        found = dict(list(self.found.items())[-MOST_MEMO:])
        hinted, told, missed = (sorted(each)[-MOST_MEMO:] for each in (self.hinted, self.told, self.missed))
        return ChatMemo(found, hinted, told, missed, self.task, self.opened_by)  # type: ignore[arg-type]

    def resume(self, memo: ChatMemo) -> None:
        """Take in what was found and told at another replica."""
        self.found.update(memo.found)
        self.hinted.update(memo.hinted)
        self.told.update(memo.told)
        self.missed.update(memo.missed)
        self.task, self.opened_by = memo.task, memo.opened_by

    def servers_in_use(self) -> tuple[str, ...]:
        """Return the upstreams called lately, the latest first."""
        return tuple(dict.fromkeys(reversed(self.upstreams)))

    def note_task(self, lines: tuple[str, ...], at: float) -> None:
        """Take in the task of a discovery. A different task starts a new episode once the old one had a call."""
        if not lines:
            return
        is_other = self.lines and self.steps and not are_alike("\n".join(self.lines), "\n".join(lines))
        if is_other or at - self.last_at > GAP_S:
            self.steps.clear()
            self.told.clear()
        self.lines, self.last_at = lines, at

    def note_prompt(self, lines: tuple[str, ...], at: float) -> None:
        """Take in a prompt of the user, which starts a new episode."""
        self.steps.clear()
        self.told.clear()
        self.lines, self.last_at = lines, at

    def note_call(self, tool: Tool, at: float) -> None:
        """Take in a call."""
        if self.steps and at - self.last_at > GAP_S:
            self.steps.clear()
            self.told.clear()
            self.lines = ()
        self.last_at = at
        self.history.append(tool.id)
        self.upstreams.append(tool.upstream)
        if self.steps[-1:] != [tool.id]:
            self.steps.append(tool.id)
            del self.steps[:-HISTORY]

    def note_hint(self, tools: Iterable[ToolId]) -> None:
        """Take in that a text named these hidden tools, with what calls of them need."""
        for tool in tools:
            self.found.pop(tool, None)
            self.hinted.add(tool)
            self.told.add(tool)

    def fork(self, handle: str, discovery: int) -> Conversation:
        """Return a copy with a handle of its own that continues from this point."""
        other = Conversation(handle, discovery, self.profile)
        other.history.extend(self.history)
        other.upstreams.extend(self.upstreams)
        # A copy of a set or a table takes a tenth of what filling an empty one takes.
        other.missed, other.found = self.missed.copy(), self.found.copy()
        other.hinted, other.told = self.hinted.copy(), self.told.copy()
        other.task, other.lines, other.last_at = self.task, self.lines, self.last_at
        other.steps = list(self.steps)
        return other


class Session:
    """Decides what the calls and discoveries of one client mean, and which of them are misses."""

    def __init__(self, record: SessionRecord, *, shows_pages: bool = False) -> None:
        self.record = record
        self.shows_pages = shows_pages
        """Whether its client shows the pages of servers (MCP Apps)."""
        self.view: View | None = None
        """The list the client was given last."""
        self.exposure = 0
        """Id of the record of that list."""
        self.policy: Policy | None = None
        """Chosen at the first list, and again when the client ledger has learned something."""
        self.list_policy: Policy | None = None
        """The policy of the list that it began with."""
        self.delivered = 0
        """How many of the tools in `grown` the client has got in a list."""
        self.grown: list[ToolId] = []
        """Tools appended to the list since it began, in order."""
        self._grown_found: set[ToolId] = set()
        """Those of them that a discovery had to find: the list lacked them before."""
        self._lacked: dict[ToolId, View] = {}
        """By tool that grew, the list that lacked it."""
        self._agreed: set[tuple[str, str, str]] = set()
        """Tools that the user agreed to run, each with the definition that was agreed to."""
        self._conversations: dict[str, Conversation] = {}
        """By handle; the one used last is at the end."""
        self._whole = Conversation(profile=record.profile)

    # -- with other replicas

    def memo(self) -> SessionMemo:
        return SessionMemo(
            self.record, max(self.exposure, 0), self.policy, self.list_policy, self.delivered, list(self.grown),
            sorted(self._grown_found), sorted(self._agreed), self._whole.memo(),
        )  # fmt: skip

    def resume(self, memo: SessionMemo) -> None:
        """Take in what happened at another replica. Which list the client was given is `set_list`'s to say."""
        self.policy, self.list_policy = memo.policy, memo.list_policy
        self.delivered, self.grown = memo.delivered, list(memo.grown)
        self._grown_found.update(memo.grown_found)
        self._agreed.update(memo.agreed)
        self._whole.resume(memo.chat)

    def conversation(self, handle: str = "") -> Conversation:
        """Return the conversation of a handle; one that is unknown starts empty. Without a handle of ours, return the
        session's own conversation."""
        if not handle or not _handle.fullmatch(handle):
            return self._whole
        found = self._conversations.pop(handle, None) or Conversation(handle, profile=self.record.profile)
        self._keep(found)
        return found

    def _keep(self, conversation: Conversation) -> None:
        self._conversations[conversation.handle] = conversation
        unused = [handle for handle, each in self._conversations.items() if each.opened_by]
        if len(unused) > MOST_UNUSED:
            del self._conversations[unused[0]]
        if len(self._conversations) > MOST_CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]

    def handle_for(self, chat: Conversation, discovery: int) -> str:
        """Return the handle that the answer of a discovery carries: the chat's own, or that of a new conversation which
        continues from everything done without a handle."""
        if not chat.handle:
            handle = base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()
            chat = chat.fork(handle, discovery)
            self._keep(chat)
        return chat.handle

    # -- what the user agreed to

    def agree(self, tool: Tool) -> None:
        """Take in that the user lets a tool run for the rest of the session, as it is defined now."""
        self._agreed.add((tool.upstream, tool.name, tool.schema_hash))

    def has_agreed(self, tool: Tool) -> bool:
        return (tool.upstream, tool.name, tool.schema_hash) in self._agreed

    # -- the list

    def lists(self, tool: ToolId) -> bool:
        """Tell whether the tool is on the session's list."""
        return self.view is not None and (tool in self.view.shown or tool in self.grown)

    def names(self, tool: ToolId) -> bool:
        """Tell whether the list names a hidden tool with what its call needs."""
        return self.view is not None and tool in self.view.named

    def sees(self, tool: ToolId) -> bool:
        """Tell whether the client was given the tool. One that has not listed again has not got what grew."""
        return self.view is not None and (tool in self.view.shown or tool in self.grown[: self.delivered])

    def grow(self, tools: Sequence[ToolId], *, found: bool) -> None:
        """Take in that tools were appended to the list; `found`: a discovery had found them."""
        self.grown += tools
        if self.view is not None:
            self._lacked.update(dict.fromkeys(tools, self.view))
        if found:
            self._grown_found.update(tools)

    def set_list(self, view: View, exposure: int) -> None:
        """Take in the list that the client was given, and the id of its record."""
        self.view = view
        self.exposure = exposure

    # -- decisions

    def call(self, tool: Tool, via: Via, at: float, chat: Conversation | None = None) -> tuple[list[Miss], Forward]:
        """Decide what a call means. It always goes through. A hidden tool is a miss, once per list; so is a tool that
        the list gained only because a discovery found it. One that a hint had named before is not."""
        if via == "name" and self.view is not None and tool.id in self.view.for_pages:
            return [], Forward(tool, hidden=False, discovery=0)  # a page calls it, and no model learns of that
        chat = chat or self._whole
        found = chat.found.get(tool.id)
        hidden = not self.sees(tool.id)
        was_hinted = found is None and (tool.id in chat.hinted or self.names(tool.id))
        misses: list[Miss] = []
        was_missing = tool.id in self._grown_found and found is not None
        key = (0 if was_missing else self.exposure, tool.id)
        if (hidden or was_missing) and not was_hinted and key not in chat.missed:
            # Once it knows a name, a client calls it again and again: that cost it nothing more.
            chat.missed.add(key)
            misses.append(self._hidden(tool, via, at, found, chat))
        chat.note_call(tool, at)
        return misses, Forward(tool, hidden, found.discovery if found else 0)

    def discovered(
        self, discovery: Discovery, id: int, of: int, chat: Conversation | None = None, starting: Sequence[str] = (),
        matching: int = 0, left_out: bool = False, told: Iterable[ToolId] = (),
    ) -> list[Miss]:  # fmt: skip
        """Take in an answer of `discover_tools`, recorded as `id`, over `of` tools. It is a miss when it found none.

        `starting`: servers whose tools were not known yet; `matching`: how many tools the search found before the gate;
        `left_out`: a rule or the profile leaves out every tool that it found; `told`: the matches whose arguments the
        answer shows, which no hint has to name.
        """
        chat = chat or self._whole
        chat.task = discovery.task or chat.task
        before = chat.hinted & chat.told
        for match in discovery.matches:
            if match.tool not in before:  # else a hint came first
                chat.found[match.tool] = _Found(id, match.rank, of, discovery.task, discovery.tokens, match.parts)
        chat.told.update(told)
        if discovery.matches:
            return []
        name = discovery.names[0] if discovery.names else ""
        cause: Cause = "unknown"
        change = "add a server that has such a tool, or describe the one that is there (server setting `description`)"
        if starting:
            cause = "offline"
            change = f"none: the tools of {_name_some(starting)} were not known yet; the next search finds them"
        elif matching and left_out and not name:
            cause = "denied"
            change = "a rule or the profile leaves out the tools that fit: foretool explain TASK --tool NAME says which"
        elif matching and not name:
            cause = "gate"
            change = "describe the task in the words of the tool, or describe its server (server setting `description`)"
        return [
            self._miss(
                chat, name, discovery.at, "nothing_found", cause, change,
                of=of, query=discovery.task, discovery=id, turns=1, tokens=discovery.tokens,
            )
        ]  # fmt: skip

    def unknown(self, name: str, candidates: Sequence[ToolId], at: float, chat: Conversation | None = None) -> Miss:
        """Decide on a call of a name that no upstream has."""
        change = (
            f"the client may mean {candidates[0]}" if candidates else "add the server that has it, or correct the name"
        )
        recovered = "suggested" if candidates else "no"
        return self._miss(chat, name, at, "unknown_name", "unknown", change, recovered=recovered, turns=1)

    def unreachable(self, name: str, upstream: str, via: Via, at: float, chat: Conversation | None = None) -> Miss:
        """Decide on a call of a tool whose upstream has never listed its tools and cannot be reached."""
        noticed: Noticed = "bridge" if via == "bridge" else "call"
        change = f"see why {upstream!r} does not start: foretool doctor"
        return self._miss(chat, name, at, noticed, "offline", change, turns=1)

    def denied(self, tool: Tool, via: Via, change: str, at: float, chat: Conversation | None = None) -> list[Miss]:
        """Decide on a call that a rule or the profile does not let through: the tool is missed once per list. The call
        leaves no trace in the conversation, so nothing is predicted from it. `change` would let it through."""
        chat = chat or self._whole
        if (self.exposure, tool.id) in chat.missed:
            return []
        chat.missed.add((self.exposure, tool.id))
        noticed: Noticed = "bridge" if via == "bridge" else "call"
        return [self._miss(chat, tool.id, at, noticed, "denied", change, turns=1)]

    def gone(self, name: str, change: str, via: Via, at: float, chat: Conversation | None = None) -> Miss:
        """Decide on a call of a tool that the config excludes or whose server is not in use."""
        noticed: Noticed = "bridge" if via == "bridge" else "call"
        return self._miss(chat, name, at, noticed, "denied", change, turns=1)

    def _explain(self, tool: Tool) -> Why | None:
        """Return why a tool is hidden, as far as the list that lacked it knows."""
        view = self._lacked.get(tool.id, self.view)
        return view.why_hidden(tool.id, tool.upstream) if view is not None else None

    def _hidden(self, tool: Tool, via: Via, at: float, found: _Found | None, chat: Conversation) -> Miss:
        why = self._explain(tool)
        noticed: Noticed = "discovery" if found else "bridge" if via == "bridge" else "call"
        cause, change = (why.cause, why.change) if why else ("unknown", "")
        if self.lists(tool.id) and tool.id not in self._grown_found:
            cause, change = "stale", "none: the list has gained it, and the client has not fetched the list since"
        if found is None:
            # An earlier task need not be what this call is for, so the miss has no query.
            more: dict[str, Any] = {"rank": why.rank, "of": why.of} if why else {}
            return self._miss(chat, tool.id, at, noticed, cause, change, recovered="called", query="", **more)
        return self._miss(
            chat, tool.id, at, noticed, cause, change, recovered="discovered", rank=found.rank, of=found.of,
            query=found.task, discovery=found.discovery, parts=found.parts, turns=1, tokens=found.tokens,
        )  # fmt: skip

    def _miss(
        self, chat: Conversation | None, tool: str, at: float, noticed: Noticed, cause: Cause, change: str, **more: Any
    ) -> Miss:
        chat = chat or self._whole
        given = {"rank": 0, "of": 0, "query": chat.task, "discovery": 0, "recovered": "no", "turns": 0, "tokens": 0}
        return Miss(
            session=self.record.key, at=at, tool=tool, noticed=noticed, cause=cause, change=change,
            history=tuple(chat.history), exposure=self.exposure, **{**given, **more},
        )  # fmt: skip


def _name_some(servers: Sequence[str]) -> str:
    named = ", ".join(map(repr, servers[:3]))
    return f"{named} and {len(servers) - 3} more" if len(servers) > 3 else named
