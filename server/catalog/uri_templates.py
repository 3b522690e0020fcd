"""URI templates (RFC 6570) of servers: which URIs fit one, in time that grows with the length of the URI alone."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

MOST_CHARACTERS: Final = 2048
MOST_EXPRESSIONS: Final = 32
"""Templates that are longer or hold more expressions fit nothing."""

_expression = re.compile(r"\{[^{}]*\}")
_scheme = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class UriTemplate(Struct, frozen=True):
    """A template as the literals between its expressions; each expression stands for any text."""

    text: str
    literals: tuple[str, ...]

    @property
    def head(self) -> str:
        """What every URI that fits begins with."""
        return self.literals[0]

    @property
    def names_scheme(self) -> bool:
        """Whether it says the scheme; without one it would fit the URIs of every server."""
        return _scheme.match(self.head) is not None

    def fits(self, uri: str) -> bool:
        """Tell whether the template can expand to a URI: its literals stand there in order, without overlap."""
        if len(self.literals) == 1:
            return uri == self.head
        last = self.literals[-1]
        if not uri.startswith(self.head) or not uri.endswith(last):
            return False
        place, end = len(self.head), len(uri) - len(last)
        for literal in self.literals[1:-1]:
            # The leftmost place leaves the most room for the literals behind it.
            place = uri.find(literal, place, end)
            if place < 0:
                return False
            place += len(literal)
        return place <= end


def parse_template(text: str) -> UriTemplate | None:
    """Return a template to match with, None for one that is too long or too rich."""
    if len(text) > MOST_CHARACTERS or text.count("{") > MOST_EXPRESSIONS:
        return None
    return UriTemplate(text, tuple(_expression.split(text)))
