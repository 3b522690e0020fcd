"""The block that ends answers of `discover_tools` and of the bridges: which hidden tools are likely to be called next.

This is DTDR's weighted set F_t in text. The paper shows a model only the tools that are likely next, each with its
probability (section 5, weighted hard masking). A proxy cannot take tools out of a frozen list. It can name those that
the list lacks, with what a call of them needs, so that the next call takes no discovery. A tool is named if its
probability, times the tokens that a discovery takes, is worth its own tokens.

The text is ours: of a server it holds names of tools and arguments alone (`catalog.signatures`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import Struct

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.signatures import signature
from foretool.server.trust.policy import BridgeName
from foretool.storage.records import Tool, ToolId

MOST: Final = 5
TOKENS: Final = 140
"""Most tokens of the block."""
PRICE: Final = 600
"""Tokens that a discovery takes: its answer, and a turn in which the model reads everything again."""
LATEST_END: Final = 0.8
"""Nothing is named where the task is done with a higher probability: a block would tempt the model to go on."""
HEAD: Final = "Likely next; needs no search."


class Successor(Struct, frozen=True):
    """A hidden tool and the probability that it is called next."""

    tool: Tool
    probability: float
    bridge: BridgeName
    """Which of our tools calls it."""


class Hint(Struct, frozen=True):
    """The likely next tools that an answer names, the likeliest first."""

    successors: tuple[Successor, ...]
    text: str

    @property
    def tools(self) -> tuple[ToolId, ...]:
        return tuple(each.tool.id for each in self.successors)

    @property
    def tokens(self) -> int:
        return estimate(self.text)


def write_hint(
    chances: Mapping[ToolId, float], threshold: float, get: Callable[[ToolId], Tool | None],
    bridge_of: Callable[[Tool], BridgeName],
) -> Hint | None:  # fmt: skip
    """Return the block for the hidden tools that are worth naming, or None. `chances`: the likeliest first."""
    chosen: list[Successor] = []
    left = TOKENS - estimate(HEAD)
    for id, chance in chances.items():
        if chance < threshold or len(chosen) == MOST:
            break
        tool = get(id)
        if tool is None or not (call := signature(tool)):
            continue
        cost = _cost(call)
        if chance * PRICE >= cost <= left:
            chosen.append(Successor(tool, chance, bridge_of(tool)))
            left -= cost
    return Hint(tuple(chosen), _text(chosen)) if chosen else None


@lru_cache(maxsize=1024)
def _cost(call: str) -> int:
    """Return the tokens of a call in the block, with its probability."""
    return estimate(call) + 4


def _text(chosen: Iterable[Successor]) -> str:
    """Write one line: `Likely next; needs no search. call_tool: files__read(path: string) 80%, files__shut() 20%`."""
    by_bridge: dict[BridgeName, list[str]] = {}
    for each in chosen:
        percent = f"{min(max(each.probability, 0.01), 0.99):.0%}"
        by_bridge.setdefault(each.bridge, []).append(f"{signature(each.tool)} {percent}")
    parts = (f"{bridge}: {', '.join(calls)}" for bridge, calls in sorted(by_bridge.items()))
    return f"{HEAD} {'; '.join(parts)}"
