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
from typing import Final, Literal

from msgspec import Struct

from foretool.server.exposure import View
from foretool.storage.records import Discovery, Miss, Noticed, Policy, SessionRecord, Tool, ToolId

HISTORY: Final = 20
MOST_CONVERSATIONS: Final = 64
"""Chats that one session keeps apart; the one that was silent longest goes first, and begins anew if it comes back."""

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


class Conversation:
    """What one chat called and found; with the handle "" what the whole session did without one."""

    def __init__(self, handle: str = "", opened_by: int = 0) -> None:
        self.handle = handle
        self.opened_by = opened_by
        """Id of the discovery whose answer gave the handle out, until it has come back; then 0."""
        self.history: deque[ToolId] = deque(maxlen=HISTORY)
        self.task = ""
        self.upstreams: deque[str] = deque(maxlen=HISTORY)
        self.missed: set[tuple[int, ToolId]] = set()
        """Hidden tools that were missed already, by the list they were missing from."""
        self.found: dict[ToolId, _Found] = {}

    def servers_in_use(self) -> tuple[str, ...]:
        """Upstreams called lately, the latest first."""
        return tuple(dict.fromkeys(reversed(self.upstreams)))

    def opened(self, handle: str, discovery: int) -> Conversation:
        """One that begins where this one stands."""
        other = Conversation(handle, discovery)
        other.history.extend(self.history)
        other.upstreams.extend(self.upstreams)
        other.missed |= self.missed
        other.found |= self.found
        other.task = self.task
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
        if len(self._conversations) > MOST_CONVERSATIONS:
            del self._conversations[next(iter(self._conversations))]

    def sees(self, tool: ToolId) -> bool:
        return self.view is not None and (tool in self.view.shown or tool in self.grown)

    def listed(self, view: View, exposure: int) -> None:
        """The client was given this list."""
        self.view = view
        self.exposure = exposure

    def call(
        self, tool: Tool, via: Literal["name", "bridge"], at: float, chat: Conversation | None = None
    ) -> list[Miss | Forward]:
        """Decide what a call means. A hidden tool is a miss, once a list, and goes through all the same."""
        chat = chat or self._whole
        found = chat.found.get(tool.id)
        hidden = not self.sees(tool.id)
        decisions: list[Miss | Forward] = []
        if hidden and (self.exposure, tool.id) not in chat.missed:
            # Once it knows a name, a client calls it again and again: that cost it nothing more.
            chat.missed.add((self.exposure, tool.id))
            noticed: Noticed = "discovery" if found else "bridge" if via == "bridge" else "call"
            decisions.append(self._miss(tool, noticed, at, found, chat))
        chat.history.append(tool.id)
        chat.upstreams.append(tool.upstream)
        return [*decisions, Forward(tool, hidden, found.discovery if found else 0)]

    def discovered(self, discovery: Discovery, id: int, of: int, chat: Conversation | None = None) -> list[Miss]:
        """An answer of `discover_tools`, recorded as `id`; a miss when it found nothing."""
        chat = chat or self._whole
        chat.task = discovery.task or chat.task
        for match in discovery.matches:
            chat.found[match.tool] = _Found(id, match.rank, of, discovery.task, discovery.tokens)
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
            change=why.change if why else "", recovered="discovered" if found else "called",
            turns=1 if found else 0, tokens=found.tokens if found else 0,
        )  # fmt: skip
