"""Trains models from episodes: one method a file, with the same names as in `rankers/`.

Serving never imports this package; only `server.learning` does, in a process of its own. Only this package imports
torch, and only in methods that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.model_format import Floats
from foretool.storage.records import Episode, Flow, MissedNeed, Tool

if TYPE_CHECKING:
    from foretool.learning.training.continuation import ContinuationScorer

Embed = Callable[[Sequence[str]], Floats]
"""Turns texts into vectors (texts, dimension), each row of length 1."""

Progress = Callable[[str, float], None]
"""Reports what is being done, and the share of it that is done, 0 to 1."""


class TooLittle(Exception):
    """There is too little to learn from; the message says what there is and what it takes."""


class Material(Struct, frozen=True):
    """What a method learns from."""

    tools: tuple[Tool, ...]
    episodes: tuple[Episode, ...]
    """Oldest first."""
    server_texts: Mapping[str, str] = {}
    """The instructions and descriptions of servers, by upstream."""
    documents: Embed | None = None
    """Turns the text of tools into vectors of the first encoder; None without an encoder."""
    queries: Embed | None = None
    """Turns tasks into vectors of all encoders side by side, each of length 1; None without an encoder."""
    flows: tuple[Flow, ...] = ()
    """Which tools' values came back as arguments of which others."""
    missed: tuple[MissedNeed, ...] = ()
    """Which words led to which hidden tool, the oldest first."""
    open_scorer: Callable[[], ContinuationScorer | None] | None = None
    """Opens the language model that scores calls, None if there is none; raises `continuation.ScorerError`."""
    earlier: bytes = b""
    """A model that this method has trained on an earlier part of the same tasks, with the same encoders. How it weighs
    its parts is taken over instead of being fitted once more; b"" without one."""
    is_trial: bool = False
    """Whether the model is only replayed. It may then be smaller than one that serves."""
    seed: int = 7
    unread: tuple[Episode, ...] = ()
    """More of the same time whose tasks `queries` would first have to embed; oldest first."""

    def of_most_tasks(self) -> Material:
        """Return this material without vectors, and so with every task, where most tasks have none: the words of all
        tasks teach more than the vectors of a few."""
        if len(self.unread) <= len(self.episodes):
            return self
        every = sorted((*self.episodes, *self.unread), key=lambda each: each.at)
        return replace(self, episodes=tuple(every), unread=(), queries=None, documents=None)


class Method(NamedTuple):
    """A way to train a model."""

    minimum: int
    """Fewest episodes worth training on."""
    train: Callable[[Material, Progress], bytes]
    """Returns a model as bytes (`retrieval.model_format`). Raises `TooLittle`."""
