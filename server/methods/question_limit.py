"""How many questions one upstream may put to clients: a person or a model has to answer each of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Message
from foretool.server.trust.questions import MOST_AT_ONCE
from foretool.server.upstreams.connection import Request, answer_error
from foretool.server.upstreams.notice_limit import Bucket, new_bucket

MOST_OPEN: Final = MOST_AT_ONCE
"""Questions in the course of one request that are not answered yet."""
MOST_ASKED: Final = 1000
"""Questions in the course of one request."""
RATE: Final = (200.0, 20.0)
"""How many questions that belong to no request one upstream may ask at once, and how many a second."""
_OPEN_S: Final = 600.0
"""A question without an answer counts for this long."""
MOST_QUESTION: Final = 1024 * 1024
"""Bytes of one question; a message for sampling may hold an image."""
_MOST_ID: Final = 1000

Answer = Callable[[Message], None]


class _Open(Struct, eq=False):
    """A question that waits for its answer."""

    id: object
    request: Request | None
    """In whose course it came."""
    until: float
    """When it no longer counts, in seconds of the clock."""


class QuestionLimit:
    """Limits how many questions of upstreams are open at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, list[_Open]] = {}
        """By upstream."""
        self._buckets: dict[str, Bucket] = {}

    def admit(self, upstream: str, message: Message, request: Request | None, answer: Answer) -> Answer | None:
        """Count a question of an upstream as open. Returns the callback for its answer, in place of `answer`. If too
        many are open, answers it with an error and returns None."""
        if (reason := self._refusal(upstream, message, request)) is not None:
            ident = message.id if message.id is not UNSET and len(str(message.id)) <= _MOST_ID else None
            answer(answer_error(ident, jsonrpc.INTERNAL_ERROR, f"{str(message.method)[:100]}: {reason}"))
            return None
        question = _Open(message.id, request, self._clock() + _OPEN_S)

        def answer_and_close(reply: Message) -> None:
            if reply.method is UNSET:
                question.until = 0.0
            answer(reply)

        self._open.setdefault(upstream, []).append(question)
        return answer_and_close

    def close(self, upstream: str, question: object) -> None:
        """Stop counting a question that its upstream has taken back."""
        for each in self._open.get(upstream, ()):
            if each.id == question:
                each.until = 0.0

    def _refusal(self, upstream: str, message: Message, request: Request | None) -> str | None:
        if len(str(message.id)) > _MOST_ID:
            return "its id is too long"
        if message.params is not UNSET and len(message.params) > MOST_QUESTION:
            return f"it has more than {MOST_QUESTION} bytes"
        now = self._clock()
        self._open[upstream] = still_open = [each for each in self._open.get(upstream, ()) if each.until > now]
        if sum(each.request is request for each in still_open) >= MOST_OPEN:
            return f"{MOST_OPEN} questions wait for answers"
        if request is None:
            bucket = self._buckets.setdefault(upstream, new_bucket(RATE, now))
            return None if bucket.take(now) else "this server asks too often"
        request.asked += 1
        return None if request.asked <= MOST_ASKED else f"more than {MOST_ASKED} questions for one request"
