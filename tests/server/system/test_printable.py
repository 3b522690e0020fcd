"""What may reach a terminal or a file of ours: printable characters alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.server.system.printable import printable, printable_json


def test_a_character_that_is_not_printable_becomes_a_space() -> None:
    assert printable("a\x1b\x9b\u202e\x7fb\nc") == "a    b c"
    assert printable("a\x1bb\nc", keep="\n") == "a b\nc"


@pytest.mark.slow
@given(st.recursive(st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_keeps_its_value_and_has_printable_lines(value: object) -> None:
    written = printable_json(json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "surrogatepass"))
    assert json.loads(written) == value
    assert all(line.isprintable() for line in written.decode().split("\n"))
