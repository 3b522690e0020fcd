"""Stops the clocks of requests while somebody answers the questions of their upstream.

An answer to a question by URL only says that the user has opened the address, so its clock stands until the upstream
says that the user is through there. It does not stand for ever: the user has `QUESTION_S` for each of the two.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message, Raw, UnsetType

QUESTION_S: Final = 600.0
"""How long a user may take for the answer to a question, or for what an address wants."""
_MOST_OPEN: Final = 1000
"""Questions of one connection that stop clocks; the oldest gives way."""


class Waiting(Protocol):
    """A request that waits for its reply."""

    timeout: float
    """Seconds without a sign of life after which it is given up; 0 means no limit."""
    deadline: float
    """When that is, in monotonic seconds."""
    questions: int
    """How many questions that the upstream asked because of it are being answered."""


class QuestionClock:
    """Stops the time limits of requests while questions of the upstream wait for a user."""

    def __init__(self) -> None:
        self._open: dict[object, tuple[str, Sequence[Waiting]]] = {}
        """By the id of a question: the id of its elicitation by URL, and the requests whose clocks stand."""
        self._at_address: dict[str, Sequence[Waiting]] = {}
        """By the id of an elicitation: the requests that wait until the user is through at its address."""

    def stop(self, question: Message, requests: Sequence[Waiting]) -> None:
        """Stop the clocks of the requests that the question may belong to."""
        if not requests:
            return
        asked = decoded_members(question.params)
        elicitation = asked.get("elicitationId") if asked.get("mode") == "url" else None
        self._open[question.id] = (elicitation if isinstance(elicitation, str) else "", requests)
        for request in requests:
            request.questions += 1
            _set_deadline(request)
        if len(self._open) > _MOST_OPEN:
            self.go_on(next(iter(self._open)))

    def go_on(self, question: object, answer: Message | None = None) -> None:
        """Let time count again for requests that waited for this question. `answer`: None if it was taken back."""
        elicitation, requests = self._open.pop(question, ("", ()))
        has_accepted = answer is not None and decoded_members(answer.result).get("action") == "accept"
        if elicitation and has_accepted and len(self._at_address) < _MOST_OPEN:
            self._at_address[elicitation] = requests
            for request in requests:
                _set_deadline(request)
        else:
            _start(requests)

    def complete(self, elicitation: object) -> None:
        """Note that the user is through at the address of an elicitation."""
        if isinstance(elicitation, str):
            _start(self._at_address.pop(elicitation, ()))


def _start(requests: Sequence[Waiting]) -> None:
    for request in requests:
        request.questions -= 1
        _set_deadline(request)


def _set_deadline(request: Waiting) -> None:
    if request.timeout:
        patience = request.timeout + (QUESTION_S if request.questions else 0.0)
        request.deadline = time.monotonic() + patience


def decoded_members(value: Raw | UnsetType) -> dict[str, Any]:
    """Return the members of an object, decoded; {} where there is none."""
    try:
        return (jsonrpc.plain_object(value) if isinstance(value, Raw) else None) or {}
    except ValueError:
        return {}
