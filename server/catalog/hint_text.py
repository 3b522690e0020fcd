"""What a prompt hook says: up to six tools with what they do, and as many more as fit with what they need to be called.

The text stands before the model beside the user's own words. So it says whose words it quotes, and no tool's line can
pose as two, or as words of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.signatures import name_calls, signature
from foretool.server.trust.text import one_line
from foretool.storage.records import Tool, ToolId

TOKENS: Final = 300
"""Longest text."""
TOOLS: Final = 6
"""How many tools are described. The others are named with their arguments alone, which takes a third of the tokens."""
MOST: Final = 24
"""How many tools are named in all."""
MORE: Final = "- also"
HEAD: Final = (
    "Tools behind foretool that may fit this request. Call a listed one by its name, any other with call_tool(name,"
    " arguments), or with call_tool_write where it says write. Quoted words are those of the servers."
)


class Hint(Struct, frozen=True):
    """A text of ours, and which tools it names."""

    text: str = ""
    tools: tuple[ToolId, ...] = ()
    tokens: int = 0


class Mark(Struct, frozen=True):
    """How a client reaches a tool."""

    is_listed: bool
    writes: bool
    """`call_tool_write` calls it where it is not listed."""
    is_named: bool = False
    """The definition of the bridge that calls it names it with what its call needs."""

    def __str__(self) -> str:
        if self.is_listed:
            return " (listed)"
        if self.is_named:
            return " (see call_tool_write)" if self.writes else " (see call_tool)"
        return " (write)" if self.writes else ""


def write_hint(tools: Iterable[Tool], mark: Callable[[Tool], Mark]) -> Hint:
    """Return a text that names these tools, as many as fit; an empty one if there are none.

    `tools`: the best first. Behind the first `TOOLS` only those are named that the list neither has nor names, so that
    the tokens go to what the model has not read.
    """
    lines, more, named = [HEAD], list[str](), list[ToolId]()
    left = TOKENS - estimate(HEAD)
    for tool in tools:
        how, is_described = mark(tool), len(lines) <= TOOLS
        if (how.is_listed or how.is_named) and not is_described:
            continue
        if is_described:
            for line in describe_tool(tool, how):
                if (cost := _count_tokens(line)) <= left:
                    lines.append(line)
                    named.append(tool.id)
                    left -= cost
                    break
        elif call := signature(tool):
            longer = [*more, f"{call}{how}"]
            if _count_tokens(name_calls(MORE, longer)) <= left:
                more = longer
                named.append(tool.id)
        if len(named) == MOST:
            break
    if more:
        lines.append(name_calls(MORE, more))
        left -= _count_tokens(lines[-1])
    return Hint("\n".join(lines), tuple(named), TOKENS - left) if named else Hint()


def _count_tokens(line: str) -> int:
    # The estimate is made for definitions of tools, and too low for a text with no letter of English.
    return 1 + (estimate(line) if line.isascii() else max(estimate(line), len(line.encode()) // 2))


def describe_tool(tool: Tool, mark: Mark) -> Iterable[str]:
    """Yield lines for a tool, from the longest to the shortest."""
    from foretool.retrieval.document import document, summary_line

    if not (call := signature(tool)):
        return
    if mark.is_listed or mark.is_named:
        # The list has its arguments. What a named tool does is worth less than the names of two or three others.
        yield f"- {tool.id}{mark}"
        return
    line = f"- {call}{mark}"
    about = one_line(summary_line(document(tool))).replace('"', "'")
    if about:
        yield f'{line}: "{about}"'
    yield line
