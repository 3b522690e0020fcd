"""Watches values flow from tool to tool: who is called with what another returned, needs that other.

Only the names of the fields are kept, never a value. Results and arguments wait here unread until the proxy is idle
(`look`), so no call is slower for it. What is too big or too much is left out.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from foretool.server.config.loader import LiveConfig
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import FlowKey, ToolId

_LEAST: Final = 4
"""Characters of a value that cannot be the same by chance: not "1", not "en"."""
_MOST: Final = 200
"""A longer value is a text that the model wrote."""
RESULT_BYTES: Final = 16 * 1024
"""A longer result is left out."""
_KEPT_BYTES: Final = 2 * 1024 * 1024
"""Of everything that waits."""
WAITING: Final = 400
"""Events that wait to be looked at; beyond these new ones are left out."""
_AT_ONCE: Final = 50
"""Events looked at in one go."""
_REMEMBERED: Final = 4
"""Results of one conversation that a call is compared with."""
_CHATS: Final = 64
"""The latest; with these all results together are at most 4 MiB."""
_VALUES: Final = 40
"""Of one call's arguments."""
_USED: Final = 200
"""Values of one conversation that are known to be the model's own, the latest, by their hash."""

Chat = tuple[str, str]
"""Session and handle."""

_FIELD = re.compile(rb'\\*"([\w.$ -]{1,60})\\*"\s*:\s*(?:\[\s*)?\\*"?$')
_WORDY = re.compile(r"\s\S+\s\S+\s")


class _Event(Struct):
    chat: Chat
    tool: ToolId
    content: bytes
    is_result: bool


class _Talk:
    """The results that one conversation got, and the values it has used."""

    def __init__(self) -> None:
        self.given: deque[_Event] = deque(maxlen=_REMEMBERED)
        self.used: dict[int, None] = {}

    def has_used(self, value: str) -> bool:
        """Return whether a value was used before, and remember it."""
        key = hash(value)
        if key in self.used:
            return True
        self.used[key] = None
        if len(self.used) > _USED:
            del self.used[next(iter(self.used))]
        return False


class FlowWatch:
    """Finds values that one tool returned and another got as an argument."""

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self._waiting: deque[_Event] = deque()
        self._waiting_bytes = 0
        self._talks: dict[Chat, _Talk] = {}
        self.seen: Counter[FlowKey] = Counter()
        """Flows that were found and not yet fetched, with how often each was seen."""

    def add(self, chat: Chat, tool: ToolId, arguments: Raw | None, result: Raw | None, profile: str = "") -> None:
        """Queue the arguments and result of a call, if texts are kept and people of its profile are learned from."""
        if not (self._config.keeps_text and self._config.profile(profile).learn):
            return
        if arguments is not None and len(arguments) <= _KEPT_BYTES:
            self._wait(_Event(chat, tool, bytes(arguments), False))
        if result is not None and len(result) <= RESULT_BYTES:
            self._wait(_Event(chat, tool, bytes(result), True))

    def _wait(self, event: _Event) -> None:
        if len(self._waiting) < WAITING and self._waiting_bytes + len(event.content) <= _KEPT_BYTES:
            self._waiting.append(event)
            self._waiting_bytes += len(event.content)

    def look(self) -> bool:
        """Compare some of the waiting results and arguments; return whether more wait."""
        for _ in range(min(_AT_ONCE, len(self._waiting))):
            event = self._waiting.popleft()
            self._waiting_bytes -= len(event.content)
            talk = self._talk(event.chat)
            if event.is_result:
                talk.given.append(event)
            else:
                self._compare(talk, event)
        return bool(self._waiting)

    def fetch(self) -> Mapping[FlowKey, int]:
        """Return the flows found since the last call of this method, with how often each was seen."""
        found, self.seen = self.seen, Counter()
        return found

    def forget(self, session: str) -> None:
        for chat in [chat for chat in self._talks if chat[0] == session]:
            del self._talks[chat]

    def _talk(self, chat: Chat) -> _Talk:
        talk = self._talks.pop(chat, None) or _Talk()
        self._talks[chat] = talk  # the latest last
        if len(self._talks) > _CHATS:
            del self._talks[next(iter(self._talks))]
        return talk

    def _compare(self, talk: _Talk, event: _Event) -> None:
        for parameter, value in _values(event.content):
            if talk.has_used(value):
                continue  # finding it in a result again says nothing
            for given in reversed(talk.given):
                if given.tool != event.tool and (field := _field_of(given.content, value)) is not None:
                    self.seen[(given.tool, event.tool, field, parameter)] += 1
                    break


def _values(arguments: bytes) -> Iterator[tuple[str, str]]:
    """Yield the values of a call that may have come from a result, each with its top-level parameter."""
    try:
        read = jsonrpc.decode_value(arguments)
    except ValueError:
        return
    members = read.items() if isinstance(read, dict) else ()
    leaves = ((parameter, leaf) for parameter, value in members for leaf in _leaves(value))
    fitting = (each for each in leaves if _LEAST <= len(each[1]) <= _MOST and not _WORDY.search(each[1]))
    yield from islice(fitting, _VALUES)


def _leaves(value: Any, depth: int = 4) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, list | dict) and depth:
        for member in value.values() if isinstance(value, dict) else value:
            yield from _leaves(member, depth - 1)


def _field_of(result: bytes, value: str) -> str | None:
    """Return the field of a result that holds a value as a whole, "" for running text, None where it does not occur."""
    wanted = value.encode("utf-8", "replace")
    at = result.find(wanted)
    while at >= 0:
        if not _goes_on(result, at, at + len(wanted)):
            held = _FIELD.search(result, max(at - 100, 0), at)
            return held[1].decode("utf-8", "replace") if held else ""
        at = result.find(wanted, at + 1)
    return None


def _goes_on(result: bytes, start: int, end: int) -> bool:
    """Return whether the value found is a piece of a longer word."""
    before, after = result[start - 1 : start], result[end : end + 1]
    return (_in_word(before) and result[start - 2 : start - 1] != b"\\") or _in_word(after)


def _in_word(byte: bytes) -> bool:
    return byte.isalnum() or byte in (b"-", b"_")
