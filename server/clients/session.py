"""One client's session, without I/O: what it was shown, what it called, and what it missed.

A method takes what happened and returns decisions as values; the proxy carries them out and the recorder keeps them.

One process may serve several chats at once, and says of no request which it belongs to. What a chat passes on is the
handle of a `discover_tools` answer; what comes with one belongs to that conversation alone. What comes without belongs
to the session as a whole, so a client that passes none on is served as if there were no handles.
"""

from __future__ import annotations

import re
import secrets
from collections import deque
from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from foretool.server.clients.exposure import View
from foretool.storage.episodes import GAP_S, are_alike
from foretool.storage.records import Discovery, Miss, Noticed, Policy, SessionRecord, Tool, ToolId

HISTORY: Final = 20
MOST_CONVERSATIONS: Final = 64
"""Chats that one session keeps apart; the one that was silent longest goes first, and begins anew if it comes back."""
MOST_UNUSED: Final = 8
"""Handles of a session that were given out and have not come back: most clients leave them alone."""

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


class Conversation:
    """What one chat called and found; with the handle "" what the whole session did without one."""

    def __init__(self, handle: str = "", opened_by: int = 0) -> None:
        self.handle = handle
        self.opened_by = opened_by
        """Id of the discovery whose answer gave the handle out, until it has come back; then 0."""
        self.history: deque[ToolId] = deque(maxlen=HISTORY)
        self.task = ""
        self.upstreams: deque[str] = deque(maxlen=HISTORY)
        self.steps: list[ToolId] = []
        """What was called for the present task, one tool called several times in a row once; what comes next is
        predicted from it. A task ends as in `storage.episodes`."""
        self.lines: tuple[str, ...] = ()
        """The present task in words."""
        self.last_at = 0.0
        self.hinted: set[ToolId] = set()
        """Hidden tools that we named as likely next."""
        self.missed: set[tuple[int, ToolId]] = set()
        """Hidden tools that were missed already, by the list they were missing from."""
        self.found: dict[ToolId, _Found] = {}

    def servers_in_use(self) -> tuple[str, ...]:
        """Upstreams called lately, the latest first."""
        return tuple(dict.fromkeys(reversed(self.upstreams)))

    def asks(self, lines: tuple[str, ...], at: float) -> None:
        """A discovery for a task; another task than before begins anew, once something was called for that."""
        if not lines:
            return
        is_other = self.lines and self.steps and not are_alike("\n".join(self.lines), "\n".join(lines))
        if is_other or at - self.last_at > GAP_S:
            self.steps.clear()
        self.lines, self.last_at = lines, at

    def prompted(self, lines: tuple[str, ...], at: float) -> None:
        """The user has asked for something: another task begins."""
        self.steps.clear()
        self.lines, self.last_at = lines, at

    def calls(self, tool: Tool, at: float) -> None:
        """A call of this conversation."""
        if self.steps and at - self.last_at > GAP_S:
            self.steps.clear()
            self.lines = ()
        self.last_at = at
        self.history.append(tool.id)
        self.upstreams.append(tool.upstream)
        if self.steps[-1:] != [tool.id]:
            self.steps.append(tool.id)
            del self.steps[:-HISTORY]

    def opened(self, handle: str, discovery: int) -> Conversation:
        """One that begins where this one stands."""
        other = Conversation(handle, discovery)
        other.history.extend(self.history)
        other.upstreams.extend(self.upstreams)
        other.missed |= self.missed
        other.found |= self.found
        other.task, other.lines, other.last_at = self.task, self.lines, self.last_at
        other.steps = list(self.steps)
        other.hinted |= self.hinted
        return other


class Session:
    """See the module."""

    def __init__(self, record: SessionRecord) -> None:
        self.record = record
        self.view: View | None = None
        """The list the client was given last."""
        self.exposure = 0
        self.policy: Policy | None = None
        """Chosen at the first list, and again when the ledger has learned something."""
        self.grown: list[ToolId] = []
        """Tools appended to the list since it began, in order."""
        self._grown_found: set[ToolId] = set()
        """Those of them that had to be discovered: they were missing before."""
        self._conversations: dict[str, Conversation] = {}
        """By handle, the one heard of last at the end."""
        self._whole = Conversation()

    def conversation(self, handle: str = "") -> Conversation:
        """The one with this handle; one that is not known (any more) begins now. What is no handle of ours is none."""
        if not _handle.fullmatch(handle):
            return self._whole
        found = self._conversations.pop(handle, None) or Conversation(handle)
        self._keep(found)
        return found

    def _keep(self, conversation: Conversation) -> None:
        self._conversations[conversation.handle] = conversation
        unused = [handle for handle, each in self._conversations.items() if each.opened_by]
        if len(unused) > MOST_UNUSED:
            del self._conversations[unused[0]]
        if len(self._conversations) > MOST_CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]

    def sees(self, tool: ToolId) -> bool:
        return self.view is not None and (tool in self.view.shown or tool in self.grown)

    def grow(self, tools: Sequence[ToolId], *, found: bool) -> None:
        """Tools were appended to the list; `found`: a discovery had found them."""
        self.grown += tools
        if found:
            self._grown_found.update(tools)

    def listed(self, view: View, exposure: int) -> None:
        """The client was given this list."""
        self.view = view
        self.exposure = exposure

    def call(
        self, tool: Tool, via: Literal["name", "bridge"], at: float, chat: Conversation | None = None
    ) -> list[Miss | Forward]:
        """Decide what a call means. A hidden tool is a miss, once a list, and goes through all the same; so is one that
        the list gained only because it had to be discovered."""
        chat = chat or self._whole
        found = chat.found.get(tool.id)
        hidden = not self.sees(tool.id)
        decisions: list[Miss | Forward] = []
        was_missing = tool.id in self._grown_found and found is not None
        key = (0 if was_missing else self.exposure, tool.id)
        if (hidden or was_missing) and key not in chat.missed:
            # Once it knows a name, a client calls it again and again: that cost it nothing more.
            chat.missed.add(key)
            noticed: Noticed = "discovery" if found else "bridge" if via == "bridge" else "call"
            decisions.append(self._miss(tool, noticed, at, found, chat))
        chat.calls(tool, at)
        return [*decisions, Forward(tool, hidden, found.discovery if found else 0)]

    def discovered(self, discovery: Discovery, id: int, of: int, chat: Conversation | None = None) -> list[Miss]:
        """An answer of `discover_tools`, recorded as `id`; a miss when it found nothing."""
        chat = chat or self._whole
        chat.task = discovery.task or chat.task
        for match in discovery.matches:
            chat.found[match.tool] = _Found(id, match.rank, of, discovery.task, discovery.tokens, match.parts)
        if discovery.matches:
            return []
        name = discovery.names[0] if discovery.names else ""
        change = "add a server that has such a tool, or describe the one that is there (server setting `description`)"
        return [
            Miss(
                session=self.record.key, at=discovery.at, tool=name, noticed="nothing_found", cause="unknown",
                rank=0, of=of, query=discovery.task, history=tuple(chat.history), exposure=self.exposure,
                discovery=id, change=change, recovered="no", turns=1, tokens=discovery.tokens,
            )
        ]  # fmt: skip

    def handle_for(self, chat: Conversation, discovery: int) -> str:
        """The handle that the answer of a discovery gives out: the chat's own, else a new one's, which begins with all
        that was done without a handle."""
        if not chat.handle:
            chat = chat.opened(secrets.token_urlsafe(16), discovery)
            self._keep(chat)
        return chat.handle

    def unknown(self, name: str, candidates: list[ToolId], at: float, chat: Conversation | None = None) -> Miss:
        """A call of a name that no upstream has."""
        chat = chat or self._whole
        change = (
            f"the client may mean {candidates[0]}" if candidates else "add the server that has it, or correct the name"
        )
        return Miss(
            session=self.record.key, at=at, tool=name, noticed="unknown_name", cause="unknown", rank=0, of=0,
            query=chat.task, history=tuple(chat.history), exposure=self.exposure, discovery=0, change=change,
            recovered="suggested" if candidates else "no", turns=1, tokens=0,
        )  # fmt: skip

    def unreachable(
        self, name: str, upstream: str, via: Literal["name", "bridge"], at: float, chat: Conversation | None = None
    ) -> Miss:
        """A call of a tool whose upstream has never listed its tools and cannot be reached."""
        chat = chat or self._whole
        return Miss(
            session=self.record.key, at=at, tool=name, noticed="bridge" if via == "bridge" else "call",
            cause="offline", rank=0, of=0, query=chat.task, history=tuple(chat.history), exposure=self.exposure,
            discovery=0, change=f"see why {upstream!r} does not start: foretool doctor", recovered="no", turns=1,
            tokens=0,
        )  # fmt: skip

    def denied(self, tool: Tool, at: float, chat: Conversation | None = None) -> Miss:
        """A call of a tool that this client's profile leaves out."""
        chat = chat or self._whole
        change = f"add {tool.upstream!r} to the servers of profile {self.record.profile!r}"
        return Miss(
            session=self.record.key, at=at, tool=tool.id, noticed="call", cause="denied", rank=0, of=0,
            query=chat.task, history=tuple(chat.history), exposure=self.exposure, discovery=0, change=change,
            recovered="no", turns=1, tokens=0,
        )  # fmt: skip

    def _miss(self, tool: Tool, noticed: Noticed, at: float, found: _Found | None, chat: Conversation) -> Miss:
        why = self.view.why_hidden(tool.id, tool.upstream) if self.view else None
        return Miss(
            session=self.record.key, at=at, tool=tool.id, noticed=noticed,
            cause=why.cause if why else "unknown",
            rank=found.rank if found else why.rank if why else 0,
            of=found.of if found else why.of if why else 0,
            query=found.task if found else "",  # an earlier task need not be what this call is for
            history=tuple(chat.history), exposure=self.exposure, discovery=found.discovery if found else 0,
            change=why.change if why else "",
            recovered="discovered" if found else "suggested" if tool.id in chat.hinted else "called",
            parts=found.parts if found else {},
            turns=1 if found else 0, tokens=found.tokens if found else 0,
        )  # fmt: skip
