"""Asks a running proxy one question and waits for the answer: for short commands, without an event loop.

A prompt hook imports this file, so it imports nothing that takes time.
"""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress

from foretool.server.local.frames import FORM, MOST_BYTES, decode, encode, refuse_greeting
from foretool.server.local.places import ProxyIdentity, choose_sockets, project_file
from foretool.server.local.unix import LocalStream, SocketFolder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

_MOST_TRIED: Final = 8
"""Sockets that are tried; proxies that were killed leave theirs until another one starts."""


class NoAnswer(Exception):
    """No running proxy answered; the message says why."""


def ask(
    folder: str, wanted: ProxyIdentity, service: str, question: dict[str, Any], patience_s: float
) -> dict[str, Any]:
    """Ask the proxy that serves `wanted` best. Raises `NoAnswer` with the reason, also once `patience_s` is over."""
    until = time.monotonic() + patience_s
    refused = "no proxy runs"
    try:
        with SocketFolder(folder) as place:
            names = choose_sockets(place.names(), wanted)
            for name in names[:_MOST_TRIED]:
                stream = place.connect(name, _left(until))
                if stream is None:
                    continue
                with stream:
                    refused, answer = _ask(stream, wanted, service, question, until, len(names) - 1)
                if answer is not None:
                    return answer
    except (OSError, ValueError) as error:
        raise NoAnswer(str(error) or type(error).__name__) from error
    raise NoAnswer(refused)


def ask_all(
    folder: str, wanted: ProxyIdentity, service: str, question: dict[str, Any], patience_s: float
) -> list[dict[str, Any]]:
    """Ask every proxy that serves `wanted`, whatever its folder; leave out those that do not answer in time."""
    found: list[dict[str, Any]] = []
    until = time.monotonic() + patience_s
    try:
        with SocketFolder(folder) as place:
            for name in choose_sockets(place.names(), wanted):
                with suppress(OSError, ValueError), place.connect(name, _left(until)) or nullcontext() as stream:
                    answer = _ask(stream, wanted, service, question, until)[1] if stream is not None else None
                    found += [answer] if answer is not None else []
    except OSError:
        pass  # no proxy has ever run
    return found


def _ask(
    stream: LocalStream,
    wanted: ProxyIdentity,
    service: str,
    question: dict[str, Any],
    until: float,
    others: int = 0,
) -> tuple[str, dict[str, Any] | None]:
    """Return why this proxy does not serve us, or its answer. `others`: how many proxies more might serve us. Raises
    `OSError` and `ValueError`."""
    hello = {
        "foretool": FORM, "wants": service, "config": wanted.config, "profile": wanted.profile,
        "folder": wanted.folder, "others": others,
    }  # fmt: skip
    # In one piece, so that the proxy wakes once.
    stream.send(encode(hello) + encode({"id": 1, "ask": question}), _left(until))
    messages = _messages(stream, until)
    greeting = next(messages, None)
    if greeting is None:
        return "the proxy closed the socket", None
    if refused := refuse_greeting(greeting):
        return refused, None
    if greeting.get("config") not in (wanted.config, project_file(wanted.folder)):
        return "the proxy serves another config", None
    reply = next(messages, None) or {"error": "the proxy closed the socket"}
    answer = reply.get("answer")
    return ("", answer) if isinstance(answer, dict) else (str(reply.get("error"))[:200], None)


def _messages(stream: LocalStream, until: float) -> Iterator[dict[str, Any]]:
    """Read messages until the other side closes. Raises `TimeoutError`, and `ValueError` for what is no message."""
    rest = b""
    while read := stream.receive(_left(until)):
        *whole, rest = (rest + read).split(b"\n")
        if any(len(line) > MOST_BYTES for line in (*whole, rest)):
            raise ValueError("a message of the proxy is too long")
        yield from map(decode, whole)


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the proxy did not answer in time")
    return left
