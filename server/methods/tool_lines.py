"""What a tool does, in one line of an answer."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from foretool.storage.records import Tool, ToolId

KEPT: Final = 4096
"""How many definitions the caches of lines and schemas keep."""
CLAUSE: Final = 70
"""Characters of what a tool does where it is only named."""


class _Described(Struct, frozen=True):
    """The members of a definition that describe a tool in words."""

    name: str = ""
    title: str | None = None
    description: str | None = None


_described = msgspec.json.Decoder(_Described)


@lru_cache(maxsize=KEPT)
def summarize(definition: bytes, most: int = 0) -> str:
    """Return the first sentence of a tool's description, or else its title. `most`: characters, 0 for the usual 120."""
    # Imported here because only searches need it, and no list should wait for it.
    from foretool.retrieval.document import MAX_SUMMARY, document, first_sentence, summary_line

    try:
        said = _described.decode(definition)
    except msgspec.DecodeError:
        return first_sentence(summary_line(document(Tool(ToolId(""), "", "", definition, ""))), most or MAX_SUMMARY)
    return first_sentence((said.description or "").strip() or (said.title or "").strip(), most or MAX_SUMMARY)
