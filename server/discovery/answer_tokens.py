"""Counts the tokens of answers once they have left, as whoever reads them would: searches are recorded with an
estimate, because counting takes as long as a quick search."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from foretool.server.clients.session import Conversation, Session
from foretool.server.recording.recorder import Recorder

_WAITING: Final = 200
"""Answers that wait at most for the ranks of tokens, which a child process writes after the first search of all."""


class _Answer(NamedTuple):
    session: Session
    chat: Conversation
    discovery: int
    texts: Sequence[str]


class AnswerTokens:
    """Corrects what was recorded of answers."""

    def __init__(self, count_text: Callable[[str], int | None], recorder: Recorder) -> None:
        """`count_text` returns the tokens of a text, None as long as it cannot count."""
        self._count_text = count_text
        self._recorder = recorder
        self._waiting: deque[_Answer] = deque(maxlen=_WAITING)

    def add(self, session: Session, chat: Conversation, discovery: int, texts: Sequence[str]) -> None:
        """Record the texts of an answer, which are counted in the loop's next round."""
        self._waiting.append(_Answer(session, chat, discovery, texts))
        asyncio.get_running_loop().call_soon(self.count)

    def count(self) -> None:
        """Count what waits."""
        while self._waiting:
            session, chat, discovery, texts = self._waiting[0]
            counts = [count for text in texts if (count := self._count_text(text)) is not None]
            if len(counts) < len(texts):
                return
            self._waiting.popleft()
            self._recorder.recount_discovery(discovery, sum(counts))
            settled = session.recount(discovery, sum(counts), chat)
            self._recorder.settle(settled.new, settled.changed)
