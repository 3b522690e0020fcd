"""What both raw clients share: protocol versions, limits, and how a reply becomes a result or an error."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]

LEGACY = "2025-06-18"
MODERN = "2026-07-28"
IDENTITY = {"name": "foretool-bench", "version": "1"}
LINE_LIMIT = 64 * 2**20
"""The longest message in bytes; a full list of thousands of tools has several megabytes."""
PATIENCE_S = 60.0


def envelope() -> Json:
    """The members of `_meta` by which a modern request names its sender."""
    meta = {"protocolVersion": MODERN, "clientInfo": IDENTITY, "clientCapabilities": {}}
    return {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}


class Failed(Exception):
    """A request was answered with an error, or not answered."""


def result_of(reply: Json) -> Json:
    """The result of a reply. Raises `Failed` for an error."""
    if "result" not in reply:
        raise Failed(json.dumps(reply.get("error", reply))[:500])
    result: Json = reply["result"]
    return result


def said(result: Json) -> str:
    """The text of a call's result. Raises `Failed` if the call failed."""
    text = "".join(part.get("text", "") for part in result["content"])
    if result.get("isError"):
        raise Failed(text[:500])
    return text
