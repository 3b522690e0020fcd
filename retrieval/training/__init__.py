"""How models are trained from episodes: one method a file, the same names as in `rankers/`.

Serving never imports this package; only `server.learning` does, in a process of its own. torch is imported here alone,
and only by methods that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from foretool.retrieval.model_format import Floats
from foretool.storage.records import Episode, Flow, Tool

Embed = Callable[[Sequence[str]], Floats]
"""Texts to (texts, dimension), each row of length 1, from the cache where it has them."""

Progress = Callable[[str, float], None]
"""What is being done, and which share of it is, 0 to 1."""


class TooLittle(Exception):
    """There is too little to learn from; says what there is and what it takes."""


class Material(Struct, frozen=True):
    """What a method learns from."""

    tools: tuple[Tool, ...]
    episodes: tuple[Episode, ...]
    """Oldest first."""
    server_texts: Mapping[str, str] = {}
    """What servers say of themselves, by upstream."""
    documents: Embed | None = None
    """The text of tools to vectors of the first encoder; None without one."""
    queries: Embed | None = None
    """Tasks to vectors of the first encoder; None without one."""
    readings: Embed | None = None
    """Tasks to vectors of all encoders, one after the other, each of length 1; None where there is but one."""
    flows: tuple[Flow, ...] = ()
    """Which tools' values came back as arguments of which others."""
    seed: int = 7


class Method(Protocol):
    """A way to learn."""

    @property
    def name(self) -> str: ...

    @property
    def minimum(self) -> int:
        """Fewest episodes worth training on."""
        ...

    def train(self, material: Material, progress: Progress) -> bytes:
        """A model as bytes (`retrieval.learned`). Raises `TooLittle`."""
        ...
