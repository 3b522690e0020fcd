"""Tells whether code of a model makes the calls of a client: then its prompt holds no list of tools.

Codex runs most of its models in *code mode*: the model writes JavaScript, and its code looks through all tools
(`ALL_TOOLS`) and calls them by their own names. Of a server the prompt holds the `instructions` alone, however long its
list is (seen with 0.171.0). So a list of all tools costs such a model nothing, and its code can call what it has. The
same client puts the whole list into the prompt of a model that it does not know. Nothing tells the two apart before the
first call: Codex writes into `_meta` which model runs, and gives the calls of code an id of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw

SESSIONS: Final = 3
"""After a call by code, a client gets all tools for so many sessions: in one whose prompt cannot hold them, no call
will ever tell."""
MOST_TOOLS: Final = 1000
"""Lists of more tools are not shown whole to code either: each start of the client reads them."""
_TURN: Final = "x-codex-turn-metadata"
_CALL: Final = "callId"
_BY_CODE: Final = "exec-"


def is_called_by_code(meta: Mapping[str, Raw]) -> bool | None:
    """Return whether code of a model made a call, by its `_meta`; None where the client does not say."""
    if _TURN not in meta or (call := jsonrpc.text(meta.get(_CALL))) is None:
        return None
    return call.startswith(_BY_CODE)
