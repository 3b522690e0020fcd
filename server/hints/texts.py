"""What hints say: the text behind a prompt of the user, and the block behind an answer.

Behind a prompt, up to six tools are named with what they do, and up to six more with what they need to be called. Each
stands there as it is called, without the bridge that calls it: small models take a bridge before a name for the tool.
The text stands before the model beside the user's own words. So it says whose words it quotes, and no tool's line can
pose as two, or as words of ours.

Behind an answer, the hidden tools are named that are likely to be called next. This is DTDR's weighted set F_t in text.
The paper shows a model only the tools that are likely next, each with its probability (section 5, weighted hard
masking). A proxy cannot take tools out of a frozen list. It can name those that the list lacks, with what a call of
them needs, so that the next call takes no discovery. A tool is named if its probability, times the tokens that a
discovery takes, is worth its own tokens. Of a server the block holds names of tools and arguments alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from foretool.retrieval.glossary import put_into_english
from foretool.retrieval.rankers.deletions import (
    changes,
    deletes,
    forbidden_deeds,
    only_asks,
    says_nothing_of_deleting,
)
from foretool.retrieval.tokens import estimate
from foretool.retrieval.words import terms
from foretool.server.catalog.signatures import example_call, name_calls, signature
from foretool.server.trust.text import one_line
from foretool.storage.records import Tool, ToolId

if TYPE_CHECKING:
    from foretool.retrieval.ranking import Ranking
    from foretool.server.trust.policy import BridgeName
    from foretool.storage.records import Level

TOKENS: Final = 300
"""Most tokens of the text behind a prompt."""
TOOLS: Final = 6
"""How many tools are described. The others are named with their arguments alone, which takes a third of the tokens."""
MOST: Final = 12
"""How many of the tools that fit best are looked at: those behind them are named for their words alone, and a model
calls what is named."""
_MORE: Final = "- also"
LISTED: Final = "Tools of your list that may fit this request:"
"""Stands before names that need nothing else: their definitions are before the model already."""
HEAD: Final = (
    "Tools behind foretool that may fit this request. Call a listed one by its name, any other with call_tool(name,"
    " arguments), or with call_tool_write where it says write. Quoted words are those of the servers."
)


_BRACKETED: Final = re.compile(r"<([^<>\s][^<>]*)>")
_QUOTABLE: Final = str.maketrans({'"': "'", "<": "("})
"""Clients put the text between tags. A server's words end neither our quotes nor a client's tag, and begin none."""
_MOST_NEXT: Final = 5
"""Tools that the block behind an answer names at most."""
_NEXT_TOKENS: Final = 140
"""Most tokens of the block."""
_PRICE: Final = 600
"""Tokens that a discovery takes: its answer, and a turn in which the model reads everything again."""
LATEST_END: Final = 0.8
"""Nothing is named where the task is done with a higher probability: a block would tempt the model to go on."""
_NEXT_HEAD: Final = "Likely next; needs no search."


class Hint(Struct, frozen=True):
    """A text of ours, and which tools it names."""

    text: str = ""
    tools: tuple[ToolId, ...] = ()
    """The best first."""
    tokens: int = 0


class Mark(Struct, frozen=True):
    """How a client reaches a tool."""

    is_listed: bool
    writes: bool
    """`call_tool_write` calls it where it is not listed."""
    is_named: bool = False
    """The definition of the bridge that calls it names it with what its call needs."""

    def __str__(self) -> str:
        return " (listed)" if self.is_listed else " (write)" if self.writes else ""


def write_prompt_hint(tools: Iterable[Tool], mark: Callable[[Tool], Mark]) -> Hint:
    """Return a text that names these tools, as many as fit; an empty one if there are none.

    `tools`: the best first, of which `MOST` are looked at. Behind the first `TOOLS` only those are named that the list
    neither has nor names. Where the list has them all, the names of the first `TOOLS` are enough.
    """
    best = [(tool, mark(tool)) for tool in islice(tools, MOST) if signature(tool)]
    if not best:
        return Hint()
    if all(how.is_listed for _, how in best):
        first = tuple(tool.id for tool, _ in best[:TOOLS])
        text = f"{LISTED} {', '.join(first)}."
        return Hint(text, first, _count_tokens(text))
    example = _write_example(*best[0])
    lines, more, named = [HEAD], list[str](), list[ToolId]()
    left = TOKENS - estimate(HEAD) - _count_tokens(example)
    for tool, how in best:
        is_described = len(lines) <= TOOLS
        if (how.is_listed or how.is_named) and not is_described:
            continue
        if is_described:
            for line in describe_tool(tool, how):
                if (cost := _count_tokens(line)) <= left:
                    lines.append(line)
                    named.append(tool.id)
                    left -= cost
                    break
        else:
            call = signature(tool)
            longer = [*more, f"{call}{how}"]
            if _count_tokens(name_calls(_MORE, longer)) <= left:
                more = longer
                named.append(tool.id)
    if more:
        lines.append(name_calls(_MORE, more))
        left -= _count_tokens(lines[-1])
    if example:
        lines.append(example)
    return Hint("\n".join(lines), tuple(named), TOKENS - left) if named else Hint()


def _write_example(tool: Tool, mark: Mark) -> str:
    """Return a whole call of the best tool where the list lacks it, else "": without one, small models give a bridge
    the arguments and forget the name of the tool."""
    if mark.is_listed:
        return ""
    return f"For example: {example_call(signature(tool), 'call_tool_write' if mark.writes else 'call_tool')}"


def is_doubtful(ranking: Ranking, level: Level) -> bool:
    """Return whether it is doubtful that any tool fits a prompt.

    Of 87 prompts that need a tool 9 are `low` by meaning, and of 94 that need none, mostly about code, 70.
    """
    return level == "none" or (level == "low" and any(line.nearness for line in ranking.evidence))


def without_unasked(tools: Iterable[Tool], prompt: str) -> Iterator[Tool]:
    """Leave out tools that delete where a prompt says nothing of that, tools that change something where it only asks,
    and those that do what it forbids: nobody has asked for these names, and a model calls what is named."""
    task = put_into_english(prompt)
    may_act = not only_asks(task)
    may_delete = may_act and not says_nothing_of_deleting(task)
    forbidden = forbidden_deeds(task)
    for tool in tools:
        is_deletion = deletes(tool.name)
        acts = is_deletion or changes(tool.name)
        is_allowed = (may_act or not acts) and (may_delete or not is_deletion)
        if is_allowed and not (acts and forbidden & {*terms(tool.name)}):
            yield tool


def _count_tokens(line: str) -> int:
    # The estimate is made for definitions of tools, and too low for a text with no letter of English.
    return 1 + (estimate(line) if line.isascii() else max(estimate(line), len(line.encode()) // 2))


def describe_tool(tool: Tool, mark: Mark) -> Iterable[str]:
    """Yield lines for a tool, from the longest to the shortest."""
    from foretool.retrieval.document import document, summary_line

    if not (call := signature(tool)):
        return
    if mark.is_listed:
        yield f"- {tool.id}{mark}"  # the list has its arguments
        return
    line = f"- {call}{mark}"
    about = _BRACKETED.sub(r"(\1)", one_line(summary_line(document(tool)))).translate(_QUOTABLE)
    if about and not mark.is_named:  # what a named tool does is worth less than the names of two or three others
        yield f'{line}: "{about}"'
    yield line


# Behind an answer


def write_next_hint(
    chances: Mapping[ToolId, float], threshold: float, get: Callable[[ToolId], Tool | None],
    bridge_of: Callable[[Tool], BridgeName],
) -> Hint | None:  # fmt: skip
    """Return the block for the hidden tools that are worth naming, or None. `chances`: the likeliest first."""
    calls: dict[ToolId, tuple[str, BridgeName]] = {}
    left = _NEXT_TOKENS - estimate(_NEXT_HEAD)
    for id, chance in chances.items():
        if chance < threshold or len(calls) == _MOST_NEXT:
            break
        tool = get(id)
        if tool is None or not (call := signature(tool)):
            continue
        cost = _cost(call)
        if chance * _PRICE >= cost <= left:
            calls[tool.id] = f"{call} {min(max(chance, 0.01), 0.99):.0%}", bridge_of(tool)
            left -= cost
    if not calls:
        return None
    text = _write_block(list(calls.values()))
    return Hint(text, tuple(calls), estimate(text))


@lru_cache(maxsize=1024)
def _cost(call: str) -> int:
    """Return the tokens of a call in the block, with its probability."""
    return estimate(call) + 4


def _write_block(calls: Sequence[tuple[str, BridgeName]]) -> str:
    """Write one line: `Likely next; needs no search. call_tool: files__read(path: string) 80%, files__shut() 20%`."""
    by_bridge: dict[BridgeName, list[str]] = {}
    for call, bridge in calls:
        by_bridge.setdefault(bridge, []).append(call)
    parts = (f"{bridge}: {', '.join(names)}" for bridge, names in sorted(by_bridge.items()))
    return f"{_NEXT_HEAD} {'; '.join(parts)}"
