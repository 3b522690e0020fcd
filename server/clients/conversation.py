"""What one chat of a session called and found, and which chats a session has.

One process may serve several chats at once and names none of them in its requests. A chat passes on the handle of a
`discover_tools` answer; a request with a handle belongs to that conversation alone. Requests without a handle belong
to the session as a whole, so a client that passes no handle on is served as if there were none.
"""

from __future__ import annotations

import base64
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from math import inf
from typing import Final

from msgspec import Struct

from foretool.server.clients.pursuit import Pursuit, RecentSearch
from foretool.storage.episodes import GAP_S, are_alike
from foretool.storage.records import Cause, ToolId

HISTORY: Final = 20
"""Calls of a conversation that are remembered."""
MOST_CONVERSATIONS: Final = 64
"""Chats that one session keeps apart. The one that was silent longest goes first, and starts empty if it comes back."""
_MOST_UNUSED: Final = 8
"""Handles of a session that were given out and not used; most clients never use one."""
_MOST_PURSUITS: Final = 64
"""Pursuits of a conversation that are settled again when a tool is called that one of them has found."""
MOST_MEMO: Final = 200
"""Tools of each kind that a memo of a conversation names."""
_MEMO_PURSUITS: Final = 4
"""The latest pursuits that it holds."""
_MOST_TRIED: Final = 200
"""Tools that a task is known to have called. A text names a dozen or two."""

_handle = re.compile(r"[A-Za-z0-9_-]{22}")


class FoundTool(Struct, frozen=True):
    discovery: int
    rank: int
    of: int
    task: str
    parts: dict[str, float]
    was_hidden: bool
    """The client's list lacked it then."""
    exposure: int
    """Id of the record of that list."""


class ChatMemo(Struct, frozen=True, omit_defaults=True):
    """What another replica needs to know of a conversation, besides what it called itself."""

    found: dict[ToolId, FoundTool] = {}
    pursuits: list[Pursuit] = []
    hinted: list[ToolId] = []
    told: list[ToolId] = []
    missed: list[tuple[int, ToolId]] = []
    opened_by: int = 0


class Conversation:
    """What one chat called and found. The one with the handle "" holds what the session did without a handle."""

    def __init__(self, handle: str = "", opened_by: int = 0) -> None:
        self.handle = handle
        self.opened_by = opened_by
        """Id of the discovery whose answer gave the handle out; 0 once the handle was used."""
        self.history: deque[ToolId] = deque(maxlen=HISTORY)
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
        self.told: dict[ToolId, None] = {}
        """Hidden tools that an answer or a hint has named in the present task with what their calls need, as they were
        named: those of one text the best first. No hint repeats them."""
        self.named: tuple[ToolId, ...] = ()
        """The tools that the latest text for the present task named as fit for it, listed or not, the best first: the
        answer of a search by task, the hint of a prompt. What is likely next is not among them."""
        self.tried: deque[ToolId] = deque(maxlen=_MOST_TRIED)
        """The tools that were called in the present task, whether they ran or not."""
        self.missed: set[tuple[int, ToolId]] = set()
        """Hidden tools that no search showed and that are on record as missed, with the exposure that lacked them."""
        self.found: dict[ToolId, FoundTool] = {}
        self._answered: set[int] = set()
        """Discoveries of `found` after which a prompt has come."""
        self.pursuits: deque[Pursuit] = deque(maxlen=_MOST_PURSUITS)
        """What it searched for, the present pursuit last. Conversations that come from one share theirs."""
        self.has_called = False
        """A tool was called since the last search."""
        self._failing = ("", 0)
        """The tool that was called last, and how many of its calls have failed one after the other."""
        self._has_worked = False
        """A call of a tool that is in `named` has come to something."""

    def memo(self) -> ChatMemo:
        found = dict(list(self.found.items())[-MOST_MEMO:])
        hinted, told, missed = (
            list(each)[-MOST_MEMO:] for each in (sorted(self.hinted), self.told, sorted(self.missed))
        )
        pursuits = list(self.pursuits)[-_MEMO_PURSUITS:]
        return ChatMemo(found, pursuits, hinted, told, missed, self.opened_by)  # type: ignore[arg-type]

    def resume(self, memo: ChatMemo) -> None:
        """Record what was found and told at another replica."""
        self.found.update(memo.found)
        self.pursuits.extend(memo.pursuits)
        self.hinted.update(memo.hinted)
        self.told.update(dict.fromkeys(memo.told))
        self.missed.update(memo.missed)
        self.opened_by = memo.opened_by

    def count_failures(self, tool: ToolId, *, has_failed: bool) -> int:
        """Record how a call ended; return how many calls of this tool have failed one after the other."""
        last, times = self._failing
        self._has_worked = self._has_worked or (not has_failed and tool in self.named)
        self._failing = (tool, (times + 1 if tool == last else 1) if has_failed else 0)
        return self._failing[1]

    def note_named(self, tools: Iterable[ToolId]) -> None:
        """Note that a text named these tools as fit for the present task, the best first."""
        self.named, self._has_worked = tuple(tools), False

    def note_try(self, tool: ToolId) -> None:
        """Note that a model called a tool, whether it runs or not."""
        if tool not in self.tried:
            self.tried.append(tool)

    def untried(self, times: int) -> tuple[ToolId, ...]:
        """Return the tools that were named for the present task and not called in it, best first. One was called that
        has failed so many `times`: after the first, that is only the very best one, and none where another that was
        named has worked, because the error may be one to correct."""
        if times == 1 and self._has_worked:
            return ()
        named = self.named[:1] if times == 1 else self.named
        return tuple(each for each in named if each not in self.tried)

    def servers_in_use(self) -> tuple[str, ...]:
        """Return the upstreams called lately, the latest first."""
        return tuple(dict.fromkeys(reversed(self.upstreams)))

    def note_task(self, lines: tuple[str, ...], at: float) -> None:
        """Record the task of a discovery. A different task starts a new episode once the old one had a call."""
        if not lines:
            return
        is_other = self.lines and self.steps and not are_alike("\n".join(self.lines), "\n".join(lines))
        if is_other or at - self.last_at > GAP_S:
            self._end_task()
        self.lines, self.last_at = lines, at

    def note_prompt(self, lines: tuple[str, ...], at: float) -> None:
        """Record a prompt of the user, which starts a new episode. The first one after a search may answer a question
        of the model; what is called after a second one is no longer what that search was for."""
        self._end_task()
        self.found = {tool: each for tool, each in self.found.items() if each.discovery not in self._answered}
        self._answered = {each.discovery for each in self.found.values()}
        if self.pursuits:
            latest = self.pursuits[-1]
            if latest.is_over and latest.searches:
                self.pursuits.append(Pursuit(is_over=True))
            latest.is_over = True
        self.lines, self.last_at = lines, at

    def note_call(self, tool: ToolId, upstream: str, at: float) -> None:
        if self.steps and at - self.last_at > GAP_S:
            self._end_task()
            self.lines = ()
        self.note_try(tool)
        self.last_at, self.has_called = at, True
        self.history.append(tool)
        self.upstreams.append(upstream)
        if self.steps[-1:] != [tool]:
            self.steps.append(tool)
            del self.steps[:-HISTORY]

    def _end_task(self) -> None:
        self.steps.clear()
        self.told.clear()
        self.tried.clear()
        self.note_named(())

    def note_hint(self, tools: Iterable[ToolId]) -> None:
        """Note that a text named these hidden tools, with what calls of them need."""
        for tool in tools:
            self.found.pop(tool, None)
            self.hinted.add(tool)
            self.told.setdefault(tool)

    def search_that_blames(self, tool: str, server: str, cause: Cause) -> RecentSearch | None:
        """Return the latest search that did not show a tool for the reason that refuses a call of it by now."""
        searches = (each for pursuit in reversed(self.pursuits) for each in reversed(pursuit.searches))
        return next((each for each in searches if each.blames(tool, server, cause)), None)

    def last_shown(self) -> list[ToolId]:
        """Return the tools that the latest search has shown, best first, those that it named last."""
        if not self.pursuits or not self.pursuits[-1].searches:
            return []
        latest = self.pursuits[-1].searches[-1]
        ranked = dict.fromkeys((*latest.ranked, *map(ToolId, sorted(latest.names))))
        return [tool for tool in ranked if tool in latest.shown]

    def pursuit_of(self, discovery: int) -> Pursuit:
        """Return the pursuit of a search; an empty one where it is not remembered any more."""
        for pursuit in reversed(self.pursuits) if discovery else ():
            if pursuit.holds(discovery):
                return pursuit
        return Pursuit()

    def fork(self, handle: str, discovery: int) -> Conversation:
        """Return a copy with a handle of its own that continues from this point."""
        other = Conversation(handle, discovery)
        other.history.extend(self.history)
        other.upstreams.extend(self.upstreams)
        # A copy of a set or a table takes a tenth of what filling an empty one takes.
        other.missed, other.found = self.missed.copy(), self.found.copy()
        other.hinted, other.told = self.hinted.copy(), self.told.copy()
        other.lines, other.last_at = self.lines, self.last_at
        other.steps = list(self.steps)
        other.named, other.tried = self.named, self.tried.copy()
        other.pursuits, other.has_called = self.pursuits.copy(), self.has_called
        return other


class Conversations:
    """The conversations of one session: that of the session as a whole, and those that have a handle."""

    def __init__(self) -> None:
        self.whole = Conversation()
        """What the session did without a handle."""
        self._by_handle: dict[str, Conversation] = {}
        """The one used last is at the end."""
        self.passes_handles = False
        """The client has passed a handle, so each search without one begins a chat."""
        self.are_recalled = False
        """They are told from the record of another proxy, which does not tell them apart."""

    def __iter__(self) -> Iterator[Conversation]:
        return iter((self.whole, *self._by_handle.values()))

    def of(self, handle: str) -> Conversation:
        """Return the conversation of a handle; one that is unknown starts empty, or with all that was recalled. Without
        a handle of ours, return the session's own conversation."""
        if not handle or not _handle.fullmatch(handle):
            return self.whole
        found = self._by_handle.pop(handle, None)
        found = found or (self.whole.fork(handle, 0) if self.are_recalled else Conversation(handle))
        self.passes_handles = True
        self._keep(found)
        return found

    def place_call(self, tool: ToolId, chat: Conversation | None) -> Conversation | None:
        """Return the conversation of a call. One by a tool's own name carries no handle, and some clients leave it out
        elsewhere: such a call belongs to the chat whose search showed the tool last."""
        if chat is not None and chat.handle:
            return chat
        own = self.whole.found.get(tool)
        latest, found = (own.discovery if own is not None else 0), chat
        for other in self._by_handle.values():
            known = other.found.get(tool) if not other.opened_by else None
            if known is not None and known.discovery >= latest:
                latest, found = known.discovery, other
        return found

    def _keep(self, conversation: Conversation) -> None:
        self._by_handle[conversation.handle] = conversation
        unused = [handle for handle, each in self._by_handle.items() if each.opened_by]
        if len(unused) > _MOST_UNUSED:
            del self._by_handle[unused[0]]
        if len(self._by_handle) > MOST_CONVERSATIONS:
            del self._by_handle[next(iter(self._by_handle))]

    def handle_for(self, chat: Conversation, discovery: int) -> str:
        """Return the handle that the answer of a discovery carries: the chat's own, or that of a new conversation which
        continues from everything done without a handle."""
        if not chat.handle:
            handle = base64.urlsafe_b64encode(os.urandom(16)).rstrip(b"=").decode()
            chat = chat.fork(handle, discovery)
            self._keep(chat)
        return chat.handle
