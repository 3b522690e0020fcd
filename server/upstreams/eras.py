"""Which eras of the protocol an upstream speaks: what is known, and what a refused handshake says."""

from __future__ import annotations

from typing import Final

from foretool.server.protocol import jsonrpc
from foretool.storage.records import Era

ERAS: Final[tuple[Era, Era]] = ("legacy", "modern")

_REPLACED: Final = frozenset({jsonrpc.METHOD_NOT_FOUND, jsonrpc.UNSUPPORTED_VERSION})
"""Error codes of a refused handshake that mean: a version that speaks only the other era has replaced the upstream."""


def other_era(era: Era) -> Era:
    return "modern" if era == "legacy" else "legacy"


def note_refusal(speaks: dict[Era, bool], era: Era, code: int) -> bool:
    """Note that a handshake of this era was refused with this error code.

    Returns whether the upstream may speak the other era; False means that it is simply broken.
    """
    other = other_era(era)
    if speaks.get(era) and code not in _REPLACED:
        return False
    if speaks.get(other) is False:
        # As far as we know it speaks neither era: either that is out of date, or the upstream is broken.
        del speaks[other]
        if not speaks.get(era):
            return False
    speaks[era] = False
    return True
