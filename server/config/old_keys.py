"""Keys of earlier versions: each is read as what says the same now, or ignored, with one line of advice.

One that protects is refused where its value means nothing, as any other key is. They go with the next version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from foretool.server.config import jsonc
from foretool.server.config.errors import Invalid, kind_of


class OldKey(NamedTuple):
    """An old key that a file has."""

    path: tuple[str | int, ...]
    advice: str


REMOVED: Final[dict[str, str]] = {
    "relist_window_s": "a client has 2 s to list its tools again",
    "reranker": "tools are ranked once",
    "validate_s": "the arguments of a call are checked at once, in a bounded number of steps",
    "bridge_destructive": "a tool that is not read-only runs through `call_tool_write`, which your client asks about; "
    'write `"confirm": "destructive"` to be asked by foretool, or `"deny": ["@destructive"]` at a server to refuse',
    "hold_ms": "a result waits half a second for a client to list again",
    "cold_list_s": "a first list waits 2 s for new servers",
    "cold_search_s": "a search waits 10 s for servers that are starting",
    "epoch_s": "a list that is in use changes once a day",
    "list_whole": "every tool is listed where all fit `list_tokens`, 10,000 if that is not set; set it to list fewer",
    "list_fill": "what is left of `list_tokens` is filled; a smaller budget lists fewer",
    "hint_threshold": "answers name tools that are called next in one of ten cases",
    "tool_tokens": "a tool gets a fifth of `answer_tokens`",
    "shipped_wordings": "well-known tools are found by the wordings that come with foretool",
    "share_words": "a word is learned once three people have used it",
    "linger_s": "a shared proxy stays for 10 s",
    "unused_stop_s": 'a server stops 10 minutes after its clients have gone; `"keep_alive": true` keeps it',
    "session_idle_s": "an HTTP session lives for half an hour without a request",
    "header_s": "the header lines of a request have 10 s",
    "max_bodies_mib": "HTTP messages share 64 MiB while they are received and answered",
    "max_connections": "half of `max_sessions` may be connected, and at least 512",
    "max_tools_mib": "the tools of a server may have 4 MiB together, and 4 KiB each where `max_tools` is larger",
}
"""Settings of the `foretool` block, each with what happens instead."""
_OF_PARTS: Final[dict[str, dict[str, str]]] = {
    "access": {
        "leeway_s": "the clocks of issuer and proxy may differ by 30 s",
        "name_claim": "a person is named by `preferred_username`, `email` or `sub`",
        "algorithms": "tokens may be signed by any of RS, PS and ES with 256, 384 or 512 bits, and EdDSA",
    },
    "enrich": {
        "timeout_s": "an answer has two minutes",
        "price_in": "`foretool enrich` says how many tokens it sends",
        "price_out": "`foretool enrich` says how many tokens come back",
    },
}
"""The same, in the objects of these settings."""


def take_from_settings(block: Any) -> tuple[Any, list[OldKey]]:
    """Return the `foretool` block without old keys, and those that it has."""
    if not isinstance(block, dict):
        return block, []
    found = [OldKey((key,), advice) for key, advice in REMOVED.items() if key in block]
    kept = {key: value for key, value in block.items() if key not in REMOVED}
    for part, removed in _OF_PARTS.items():
        if isinstance(own := kept.get(part), dict):
            found += [OldKey((part, key), advice) for key, advice in removed.items() if key in own]
            kept[part] = {key: value for key, value in own.items() if key not in removed}
    return kept, found


def take_from_server(entry: Any, here: jsonc.Path) -> tuple[Any, list[OldKey]]:
    """Return the entry of a server, at the path `here`, in the words of this version, and the old keys that it has.
    Raises `Invalid`."""
    if not isinstance(entry, dict):
        return entry, []
    found: list[OldKey] = []
    kept = dict(entry)
    if "approve_new" in kept:
        strict = _bool(kept.pop("approve_new"), (*here, "approve_new"))
        found.append(OldKey(("approve_new",), 'write `"trust": "review"`' if strict else "it is off without it"))
        kept |= {"trust": "review"} if strict else {}
    if isinstance(person := kept.get("per_user"), dict) and "kind" in person:
        found.append(OldKey(("per_user", "kind"), "a server with `authorization_endpoint` asks each person"))
        kept["per_user"] = {key: value for key, value in person.items() if key != "kind"}
    if isinstance(tools := kept.get("tools"), dict):
        kept["tools"] = {name: _take_from_tool(name, own, kept, found, here) for name, own in tools.items()}
    return kept, found


def _take_from_tool(name: str, tool: Any, server: dict[str, Any], found: list[OldKey], here: jsonc.Path) -> Any:
    """Return what is said of one tool without old keys; those that still hold go into the server's entry."""
    if not isinstance(tool, dict):
        return tool
    for key, list_of in (("hidden", "exclude"), ("pin", "pin")):
        if key in tool:
            found.append(OldKey(("tools", name, key), f'write {name!r} into "{list_of}" of the server'))
            is_on = _bool(tool[key], (*here, "tools", name, key))
            if is_on and isinstance(patterns := server.get(list_of, []), list | tuple):
                server[list_of] = [*patterns, re.sub(r"[*?\[]", r"[\g<0>]", name)]
    if "title" in tool:
        found.append(OldKey(("tools", name, "title"), "the title of the server is shown"))
    return {key: value for key, value in tool.items() if key not in ("hidden", "pin", "title")}


def _bool(value: Any, path: jsonc.Path) -> bool:
    if isinstance(value, bool):
        return value
    raise Invalid(path, f"expected true or false, found {kind_of(value)}; write true or false without quotes")


def explain_old_keys(keys: list[OldKey]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the path of each old key, and the line about it."""
    for each in keys:
        yield each.path, f"this setting was removed: {each.advice}; delete it"
