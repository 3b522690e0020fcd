from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foretool.retrieval.near_words import SortedLines

KEYS = st.text(alphabet="abc ", min_size=1, max_size=3).map(str.encode)
RESTS = st.text(alphabet="xyz\t", max_size=4).map(str.encode)


@given(st.lists(st.tuples(KEYS, RESTS), max_size=20), KEYS, st.booleans())
def test_every_line_is_found_by_its_key_and_none_by_another(
    rows: list[tuple[bytes, bytes]], wanted: bytes, ends_with_a_break: bool
) -> None:
    lines = sorted(key + b"\t" + rest for key, rest in rows)
    data = b"\n".join(lines) + (b"\n" if ends_with_a_break and lines else b"")
    table = SortedLines(data, b"\t")
    for key in {wanted, *(key for key, _ in rows)}:
        assert table.find(key) == sorted(rest for each, rest in rows if each == key)


def test_a_key_that_only_begins_alike_is_not_found() -> None:
    table = SortedLines(b"cat\tone\ncattle\ttwo\n", b"\t")
    assert table.find(b"cat") == [b"one"] and table.find(b"ca") == [] and table.find(b"catt") == []
