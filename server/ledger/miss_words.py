"""Misses in words: their causes, what revealed them, their rank and their cost."""

from __future__ import annotations

from typing import Final

from foretool.server.system.counts import plural
from foretool.storage.records import Cause, Miss, Noticed

CAUSES: Final[dict[Cause, str]] = {
    "rank": "neither its use, nor the profile's description, nor earlier tasks suggested it",
    "budget": "it was a candidate for the list, but better ones took the tokens",
    "stale": "the client's list is older than what brings the tool into it: its use, or a change of the servers",
    "gate": "the search found tools, but was too unsure to show one",
    "policy": "a list that may grow keeps tokens free for that, and they were missing",
    "offline": "its server's tools were not known when the list was made",
    "preparing": "search by meaning was still being prepared, so words alone decided",
    "denied": "a rule of the config refuses it, the profile excludes its server, or it waits for `foretool review`",
    "failing": "each of its latest calls failed, so no list takes it unless it is pinned",
    "app": "it has a page (MCP Apps), which the client shows only for tools of its list",
    "unknown": "no server of this config has such a tool, or it is unknown which list the client had",
}
NOTICED: Final[dict[Noticed, str]] = {
    "call": "it was called by its name, although it was not in the list",
    "bridge": "it was called through call_tool or call_tool_write",
    "discovery": "discover_tools found it, and then it was called",
    "search": "discover_tools did not show it: it was called all the same, or the client searched again",
    "nothing_found": "discover_tools found nothing",
    "unknown_name": "a name was called that no server has",
}
RECOVERED: Final[dict[str, str]] = {
    "called": "called: the client called it all the same",
    "discovered": "discovered: a search found it, and the client called it",
    "suggested": "suggested: the client was told of names that are like it",
    "no": "no",
}


def say_why(miss: Miss) -> str:
    """Say why this tool was missed, more exactly than its cause does; "" if the cause says it all."""
    if miss.cause == "denied":
        return next((said for start, said in _DENIED if miss.change.startswith(start)), miss.change.partition(": ")[0])
    if miss.noticed == "search":
        return _say_why_not_shown(miss)
    if miss.cause == "unknown" and miss.noticed == "unknown_name":
        return "no server of this config has a tool of this name"
    if miss.cause == "unknown" and miss.noticed == "nothing_found":
        return "the search found nothing that fits these words at all"
    if miss.cause == "unknown":
        return "it is not known which list the client had"
    return ""


def _say_why_not_shown(miss: Miss) -> str:
    """Say why a search did not show the tool that it was for."""
    if miss.cause not in ("rank", "unknown"):
        return ""
    if not miss.tool:
        return "the client searched again, and what it needed is not known"
    return "other tools fit the words of the search better" if miss.rank else "the words of the search hardly fit it"


_DENIED: Final = (
    ("remove ", "a rule of the config refuses it"),
    ("add ", "the profile does not have its server"),
    ("foretool review", "it waits for your approval"),
    ('set "confirm"', 'the setting "confirm" asks you first, and this client cannot ask'),
)
"""By the start of the change that would have let the call through, why it was refused."""


def say_rank(miss: Miss) -> str:
    """Write the rank of the missed tool: `2/42`, or `-` if it had none."""
    return f"{miss.rank}/{miss.of}" if miss.rank else f"-/{miss.of}" if miss.of else "-"


def say_cost(miss: Miss) -> str:
    """Write what a miss cost: `1 turn, 80 tokens`."""
    parts = [plural(miss.turns, "turn")] if miss.turns else []
    return ", ".join([*parts, plural(miss.tokens, "token")] if miss.tokens else parts) or "-"


def say_place(miss: Miss) -> str:
    """Write the rank of the missed tool in words."""
    if miss.rank:
        return f"number {miss.rank:,} of {plural(miss.of, 'ranked tool')}"
    return f"not one of {plural(miss.of, 'ranked tool')}" if miss.of else "not ranked"
