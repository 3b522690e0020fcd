"""What a model decides in one turn, how it is asked, and the grammar that its answer is decoded under.

A small model that may write what it likes describes a call in prose and makes none. So it writes one JSON object: a
call of a listed tool, or an answer that ends the task. Every arm has this grammar. A model behind an endpoint is asked
by its own tool calls instead, and text without one is its answer.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct

from bench.clients.messages import Json

BRIDGES: Final = ("call_tool", "call_tool_write")
INNER: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(BRIDGES, ("name",)), "call_backend_tool": ("tool_name",), "execute_tool": ("mcp_name", "tool_name"),
}  # fmt: skip
"""The arguments of a bridge, ours or a peer's, that name the tool which it runs."""
ROLE: Final = (
    "You carry out the user's task on this computer with the tools below. Never make up what a tool would say."
)
FORM: Final = (
    'Write one JSON object a turn and nothing else. {"name": TOOL, "arguments": {...}} calls a tool of the list;'
    ' {"answer": TEXT} tells the user the result once the task is done.'
)
_JSON: Final = r"""
object ::= "{" (pair (", " pair)*)? "}"
pair ::= string ": " value
value ::= object | "[" (value (", " value)*)? "]" | string | number | "true" | "false" | "null"
string ::= "\"" ([^"\\\x00-\x1F] | "\\" ["\\/bfnrt])* "\""
number ::= "-"? [0-9]+ ("." [0-9]+)?
"""


class Decision(Struct, frozen=True):
    """A call of a tool, or an answer where `tool` is empty."""

    tool: str = ""
    arguments: Json = {}
    answer: str = ""
    text: str = ""
    """As the model wrote it."""
    read: int = 0
    cached: int = 0
    written: int = 0
    """Tokens of the prompt, those of them that the model had read before, and tokens of the answer."""
    seconds: float = 0.0

    @property
    def meant(self) -> str:
        """The tool that it calls, also through a bridge."""
        if self.tool not in INNER:
            return self.tool
        return "__".join(str(self.arguments.get(name, "")) for name in INNER[self.tool])


class Turn(Struct, frozen=True):
    """A decision, and what came of it: the result of the call, or what the user said to the answer."""

    decision: Decision
    result: str


def for_model(tool: Json) -> Json:
    """What clients put of a definition before a model."""
    return {
        "name": tool["name"], "description": tool.get("description", ""), "parameters": tool.get("inputSchema") or {}
    }  # fmt: skip


def system_text(instructions: str) -> str:
    """What stands before a conversation, beside the tools: our role and the server's `instructions`."""
    return f"{ROLE}\n\nInstructions of the tools' server:\n{instructions}" if instructions else ROLE


def write_prompt(instructions: str, tools: Sequence[Json], task: str, turns: Sequence[Turn] = ()) -> str:
    """The conversation as ChatML. The tools come first, so that whatever has the same list shares what was read."""
    listed = "\n".join(json.dumps(for_model(tool), ensure_ascii=False) for tool in tools)
    lines = [
        f"<|im_start|>system\n<tools>\n{listed}\n</tools>\n\n{system_text(instructions)}\n\n{FORM}<|im_end|>",
        f"<|im_start|>user\n{task}<|im_end|>",
    ]
    for turn in turns:
        said = f"<tool_response>\n{turn.result}\n</tool_response>" if turn.decision.tool else turn.result
        lines += [
            f"<|im_start|>assistant\n{turn.decision.text}<|im_end|>", f"<|im_start|>user\n{said}<|im_end|>"
        ]  # fmt: skip
    return "\n".join([*lines, "<|im_start|>assistant\n"])


def grammar(names: Collection[str], *, is_brief: bool = False) -> str:
    """The grammar of a decision. `is_brief`: it ends behind the name of the tool, or of the one that a bridge runs."""
    bridges = [name for name in names if name in BRIDGES]
    plain = [name for name in names if name not in BRIDGES]
    if not names:
        return f'root ::= "{{\\"answer\\": " string "}}"{_JSON}'
    if not is_brief:
        return (
            'root ::= "{\\"name\\": \\"" tool "\\", \\"arguments\\": " object "}" | "{\\"answer\\": " string "}"\n'
            f"tool ::= {_choice([*plain, *bridges])}{_JSON}"
        )
    bridged = '| bridge "\\", \\"arguments\\": {\\"name\\": \\"" [a-zA-Z0-9_-]+ "\\"" ' if bridges else ""
    rules = f'root ::= "{{\\"name\\": \\"" (tool "\\"" {bridged}) | "{{\\"answer\\": \\""\ntool ::= {_choice(plain)}\n'
    return rules + (f"bridge ::= {_choice(bridges)}\n" if bridges else "")


def _choice(names: Sequence[str]) -> str:
    return " | ".join(json.dumps(name) for name in names)


def read_decision(text: str, *, is_brief: bool = False) -> Decision:
    """Read what was written under the grammar; what was cut off in the middle is an answer. `is_brief`: it may end
    within the name that a bridge is to run, and leaves its brackets open."""
    for end in ("", '"}', "}", "}}", '"}}') if is_brief else ("",):
        try:
            said = json.loads(text + end)
        except ValueError:
            continue
        if isinstance(said, dict) and said.get("name"):
            return Decision(said["name"], said.get("arguments") or {}, text=text)
        if isinstance(said, dict):
            return Decision(answer=str(said.get("answer", "")), text=text)
    return Decision(answer=text, text=text)
