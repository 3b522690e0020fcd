"""Which eras an upstream is known to speak after a refused handshake."""

from __future__ import annotations

import pytest

from foretool.server.protocol import jsonrpc
from foretool.server.upstreams.eras import note_refusal, other_era
from foretool.storage.records import Era

Known = dict[Era, bool]


def test_each_era_is_the_other_one_of_the_other() -> None:
    assert (other_era("legacy"), other_era("modern")) == ("modern", "legacy")


@pytest.mark.parametrize(("known", "code", "may_speak_legacy", "after"), [
    ({}, -32000, True, {"modern": False}),
    ({"modern": True}, -32000, False, {"modern": True}),
    ({"modern": True}, jsonrpc.METHOD_NOT_FOUND, True, {"modern": False}),
    ({"legacy": False}, jsonrpc.METHOD_NOT_FOUND, False, {}),
    ({"modern": True, "legacy": False}, jsonrpc.UNSUPPORTED_VERSION, True, {"modern": False}),
])  # fmt: skip
def test_a_refused_modern_handshake(known: Known, code: int, may_speak_legacy: bool, after: Known) -> None:
    assert note_refusal(known, "modern", code) is may_speak_legacy
    assert known == after
