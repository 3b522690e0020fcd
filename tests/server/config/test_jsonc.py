"""JSON as people write it: tolerated where editors tolerate it, located where it is wrong."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.server.config import jsonc

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def test_comments_and_trailing_commas_are_read_over() -> None:
    text = """// head
    {
      "a": [1, 2, /* two */ ], // rest
      "url": "https://x//y/*z*/", "tail": ",]",
    }"""
    assert jsonc.loads(text) == {"a": [1, 2], "url": "https://x//y/*z*/", "tail": ",]"}


def test_blanking_keeps_every_offset() -> None:
    text = '{ /* a\nb */ "k": [1, // x\n ], }'
    assert jsonc.blank_comments(text) == '{     \n     "k": [1      \n ]  }'
    assert len(jsonc.blank_comments(text)) == len(text)


def test_places_of_nested_values_escaped_keys_and_list_items() -> None:
    text = '// c\n{"a": {"b\\u0063": [true, {"d": 1}]},\n "e\\"f": null,}'
    found = jsonc.places(text)
    assert {path: text[at:].split()[0][:4] for path, at in found.values.items()} == {
        (): '{"a"', ("a",): '{"b\\', ("a", "bc"): "[tru", ("a", "bc", 0): "true", ("a", "bc", 1): '{"d"',
        ("a", "bc", 1, "d"): "1}]}", ('e"f',): "null",
    }  # fmt: skip
    assert jsonc.line_and_column(text, found.keys[('e"f',)]) == (3, 2)
    assert found.of(("a", "bc", 1, "missing")) == found.values[("a", "bc", 1)]


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("", 1, 1, "the file is empty"),
        ("{", 1, 2, "close the bracket with }"),
        ('{"a":\n  x}', 2, 3, "expected a value, found 'x'"),
        ("{'a': 1}", 1, 2, "expected a key in double quotes"),
        ('{"a" 1}', 1, 6, 'expected ":" after the key'),
        ('{"a": 1\n "b": 2}', 2, 2, "put a comma between the two"),
        ('{"a": 1,,}', 1, 9, "remove one comma"),
        # Found by fuzzing: a comma that follows nothing was read over, and then had no place.
        ("{,}", 1, 2, "remove one comma"),
        ("[ , ]", 1, 3, "remove one comma"),
        ('{"a": ,}', 1, 7, "remove one comma"),
        ('{"a": [1, 2}', 1, 12, 'expected "," or "]", found \'}\''),
        ('{"a": "x\n"}', 1, 7, "a string that is not closed on its line"),
        ('{"a": "C:\\Users"}', 1, 10, "write \\\\ for a backslash"),
        ('{"a": "\t"}', 1, 8, "write \\t"),
        ('{"a": 1} }', 1, 10, "expected the end of the file"),
        ('{"a": 01}', 1, 7, "expected a value"),
        ('{"a": 1e999}', 1, 7, "out of range"),
        ('{"a": "\\ud800"}', 1, 7, "half a surrogate pair"),
        ('{"a": 1 /* }', 1, 9, "a comment that is never closed"),
        ("[" * 100_000, 1, 1, "nested too deeply"),
    ],
)
def test_what_is_no_json_is_located_and_told_the_way_out(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(jsonc.JsonError) as caught:
        jsonc.loads(text)
    assert (*jsonc.line_and_column(text, caught.value.offset), said in str(caught.value)) == (line, column, True)


@pytest.mark.parametrize("piece", ['"\\', "/*/", '"a', ", ", "\\\"'", "//"])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    with pytest.raises(jsonc.JsonError):
        jsonc.loads("[" + piece * 100_000)


@pytest.mark.slow
@given(json_values)
def test_every_json_value_survives_and_every_part_of_it_is_located(value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False)
    assert jsonc.loads(text) == value
    for path, offset in jsonc.places(text).values.items():
        part = value
        for step in path:
            part = part[step]
        assert json.JSONDecoder().raw_decode(text, offset)[0] == part


@given(st.text(alphabet='{}[]",:/* \\\n1tx', max_size=30))
def test_decoder_and_scanner_agree_on_what_is_json(text: str) -> None:
    try:
        jsonc.loads(text)
    except jsonc.JsonError:
        return
    jsonc.places(text)
