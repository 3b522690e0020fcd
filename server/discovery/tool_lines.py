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


def summarize(definition: bytes, most: int = 0) -> str:
    """Return the first sentence of a tool's description, or else its title, in at most `most` characters; 0 stands for
    the usual 120, which is the most."""
    # Imported here because only searches need it, and no list should wait for it.
    from foretool.retrieval.document import MAX_SUMMARY, cut_at_word

    return cut_at_word(_first_sentence(definition), most or MAX_SUMMARY)


@lru_cache(maxsize=KEPT)
def _first_sentence(definition: bytes) -> str:
    """Return the first sentence, one character longer than what is shown where more follows."""
    from foretool.retrieval.document import MAX_SUMMARY, document, summary_line, whole_sentence

    try:
        said = _described.decode(definition)
    except msgspec.DecodeError:
        text = summary_line(document(Tool(ToolId(""), "", "", definition, "")))
    else:
        text = (said.description or "").strip() or (said.title or "").strip()
    return whole_sentence(text)[: MAX_SUMMARY + 1]
