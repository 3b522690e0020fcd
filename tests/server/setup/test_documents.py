"""A change of one value leaves every other character of a file as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.server.config import jsonc
from foretool.server.setup.documents import DocumentError, JsonDocument, Kind, open_document, value_at

SERVERS = """// head
{
  "a": 1, // one
  /* two */
  "mcpServers": {
    // first
    "git": {"command": "uvx", "args": ["x"]}, // behind git
    "time": {
      "command": "npx"
    } // behind time
    // at the end
  },
  "z": [1,2,],
}
"""


def test_comments_and_order_of_json_survive() -> None:
    document = open_document(SERVERS, "json")
    document.set(("mcpServers", "foretool"), {"command": "f"})
    document.remove(("mcpServers", "git"))
    document.remove(("mcpServers", "time"))
    assert (
        document.text()
        == """// head
{
  "a": 1, // one
  /* two */
  "mcpServers": {
    // first
    // behind git
    // behind time
    // at the end
    "foretool": {
      "command": "f"
    }
  },
  "z": [1,2,],
}
"""
    )


def test_what_a_text_says_of_a_member_goes_with_it() -> None:
    document = open_document(SERVERS, "json")
    document.remove(("mcpServers", "time"), with_comments=True)
    document.remove(("mcpServers", "git"), with_comments=True)
    document.remove(("mcpServers", "nothing"), with_comments=True)
    assert (
        document.text()
        == """// head
{
  "a": 1, // one
  /* two */
  "mcpServers": {
    // at the end
  },
  "z": [1,2,],
}
"""
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "s": {\n    "f": 1\n  }\n}\n'),
        ("{}", '{\n  "s": {\n    "f": 1\n  }\n}'),
        ('{"s":{}}', '{"s":{\n  "f": 1\n}}'),
        ('{"s": {"a": 2}}', '{"s": {"a": 2, "f": 1}}'),
        ('{ "s": { "a": 2 }, "b": 3 }', '{ "s": { "a": 2, "f": 1 }, "b": 3 }'),
        ('{\r\n\t"s": {\r\n\t\t"a": 2\r\n\t}\r\n}\r\n', '{\r\n\t"s": {\r\n\t\t"a": 2,\r\n\t\t"f": 1\r\n\t}\r\n}\r\n'),
        ('\ufeff{"s": {"a": 2,}}', '\ufeff{"s": {"a": 2, "f": 1}}'),
    ],
)
def test_a_member_is_added_in_the_style_of_the_file(before: str, after: str) -> None:
    document = open_document(before, "json")
    document.set(("s", "f"), 1)
    assert document.text() == after
    document.set(("s", "f"), 1)
    assert document.text() == after


def test_a_name_is_written_with_its_own_letters_as_values_are() -> None:
    document = open_document("", "json")
    document.set(("Räume", "日本語"), "für")
    assert '"Räume": {\n    "日本語": "für"' in document.text()


LEAVES = st.one_of(st.integers(-9, 9), st.text('ab/*\\"é,:', max_size=4), st.booleans(), st.none())
VALUES = st.recursive(
    LEAVES, lambda inner: st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=3), max_leaves=9
)


def written(data: Any, style: int) -> str:
    """JSON in one of several styles, with comments."""
    text = json.dumps(data, indent=[None, 2, "\t"][style % 3], ensure_ascii=style % 2 == 0)
    return text if style < 3 else f"// top\n{text} /* end */\n"


@given(
    st.dictionaries(st.text("xyz", min_size=1, max_size=2), VALUES, max_size=4),
    st.lists(
        st.tuples(st.text("xyz", min_size=1, max_size=2), st.text("xyz", min_size=1, max_size=2), VALUES), max_size=5
    ),
    st.integers(0, 5),
)
def test_changes_of_json_are_those_of_its_data(data: dict[str, Any], changes: list[Any], style: int) -> None:
    document = open_document(written(data, style), "json")
    for first, second, value in changes:
        if isinstance(data.get(first), dict) or first not in data:
            if value is None:
                document.remove((first, second))
                data.get(first, {}).pop(second, None)
            else:
                document.set((first, second), value)
                data.setdefault(first, {})[second] = value
        else:
            document.remove((first,))
            data.pop(first)
        assert jsonc.loads(document.text()) == data
    assert ("// top" in document.text(), "/* end */" in document.text()) == (style >= 3, style >= 3)


def test_toml_keeps_comments_and_its_other_tables() -> None:
    document = open_document(
        'model = "o4"  # keep\n\n[mcp_servers.git]  # gone\ncommand = "uvx"\n\n[tui]\ntheme = "dark"\n', "toml"
    )
    document.set(("mcp_servers", "foretool"), {"command": "f", "env": {"A": "b"}})
    document.remove(("mcp_servers", "git"))
    document.remove(("mcp_servers", "absent"))
    assert document.data() == {
        "model": "o4", "mcp_servers": {"foretool": {"command": "f", "env": {"A": "b"}}}, "tui": {"theme": "dark"}
    }  # fmt: skip
    assert 'model = "o4"  # keep\n' in document.text() and '\n\n[tui]\ntheme = "dark"\n' in document.text()


def test_yaml_keeps_comments_quotes_and_lists() -> None:
    text = "# goose\nextensions:\n  # git\n  git:\n    cmd: \"uvx\"\n    args:\n      - a\nMODEL: 'x' # m\n"
    document = open_document(text, "yaml")
    document.set(("extensions", "foretool"), {"cmd": "f", "args": ["serve"]})
    expected = text.replace("MODEL", "  foretool:\n    cmd: f\n    args:\n      - serve\nMODEL")
    assert document.text() == expected
    document.remove(("extensions", "foretool"))
    assert document.text() == text


def test_items_of_a_yaml_list_are_found_by_name() -> None:
    document = open_document("mcpServers:\n  - name: a # one\n    command: x\n  - name: b\n    command: y\n", "yaml")
    document.set(("mcpServers", "foretool"), {"command": "f"})
    document.remove(("mcpServers", "b"))
    assert [each["name"] for each in document.data()["mcpServers"]] == ["a", "foretool"]
    assert "# one" in document.text()
    assert value_at(document.data(), ("mcpServers", "a", "command")) == "x"


@pytest.mark.parametrize(
    ("text", "kind", "problem"),
    [
        ('{"a": ', "json", "1:7: expected a value, found the end of the file"),
        ("a = = 1", "toml", "cannot be read as TOML"),
        ("a: [1", "yaml", "cannot be read as YAML"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, kind: Kind, problem: str) -> None:
    with pytest.raises(DocumentError, match=problem):
        open_document(text, kind)


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_a_value_that_is_no_object_is_not_overwritten(kind: Kind) -> None:
    document = open_document('{"a": 5}', kind)
    with pytest.raises(DocumentError, match="a: expected"):
        document.set(("a", "b"), 1)


@pytest.mark.parametrize("kind", ["json", "yaml"])
@pytest.mark.parametrize("text", ["[1]", '"x"'])
def test_a_document_that_is_no_object_is_left_as_it_is(text: str, kind: Kind) -> None:
    """init ended with an internal error for a YAML text."""
    with pytest.raises(DocumentError, match="the top: expected"):
        open_document(text, kind).set(("a", "b"), 1)


def test_servers_in_an_inline_table_of_toml_get_one_more_in_it() -> None:
    """init ended with an internal error."""
    document = open_document('mcp_servers = {a = {command = "x"}, b = {}} # mine\nmodel = "o4"\n', "toml")
    document.set(("mcp_servers", "foretool"), {"command": "f", "env": {"A": "1"}})
    document.remove(("mcp_servers", "a"))
    document.set(("mcp_servers", "b", "env", "A"), "2")
    foretool = 'foretool = {command = "f", env = {A = "1"}}'
    assert document.text() == f'mcp_servers = {{ b = {{env = {{A = "2"}}}}, {foretool}}} # mine\nmodel = "o4"\n'


@pytest.mark.parametrize("kind", ["json", "toml", "yaml"])
def test_a_change_that_changes_nothing_keeps_the_text(kind: Kind) -> None:
    text = {"json": '{"a" :{ "b":1}}', "toml": "a.b   = 1", "yaml": "a:   {b:   1}"}[kind]
    document = open_document(text, kind)
    document.set(("a", "b"), 1)
    document.remove(("a", "c"))
    assert document.text() == text


@given(
    items=st.lists(st.text("ab", min_size=1, max_size=2), max_size=5, unique=True),
    steps=st.lists(st.tuples(st.booleans(), st.text("ab", min_size=1, max_size=2)), max_size=6),
    style=st.sampled_from(["[{}]", "[ {} ]", "[\n    {}\n  ]", "[{},]", "[\n    {}, // last\n  ]"]),
)
def test_items_of_a_list_come_and_go_as_in_plain_data(
    items: list[str], steps: list[tuple[bool, str]], style: str
) -> None:
    between = ",\n    " if "\n" in style else ", "
    inside = style.replace("{}", between.join(map(json.dumps, items))) if items else "[]"
    text = f'{{\n  "pin": {inside}, // behind\n  "z": 1\n}}\n'
    document = JsonDocument(text)
    wanted = list(items)
    for adds, item in steps:
        if adds:
            document.add_item(("pin",), item)
            wanted += [item] if item not in wanted else []
        else:
            document.remove_item(("pin",), item)
            wanted = [each for each in wanted if each != item]
        assert document.data() == {"pin": wanted, "z": 1}
    assert document.text().count("// behind") == 1 and document.text().count("// last") == text.count("// last")


def test_a_server_between_comments_is_no_comment() -> None:
    document = open_document('{"mcpServers": {\n  /* one */ "x": {}, /* two */ "y": {}\n}}\n', "json")
    document.remove(("mcpServers", "y"), with_comments=True)
    assert document.text() == '{"mcpServers": {\n  /* one */ "x": {} /* two */\n}}\n'


def test_what_stands_twice_is_removed_as_a_whole_and_the_rest_stays_json() -> None:
    document = open_document(
        '{"s": {\n "git": {"command": "a"},\n "time": {},\n "git": {"env": {"A": 1}}\n}}\n', "json"
    )
    document.set(("s", "git", "command"), "b")
    assert value_at(document.data(), ("s", "git")) == {"env": {"A": 1}, "command": "b"}
    document.remove(("s", "git"))
    assert document.text() == '{"s": {\n "time": {}\n}}\n'
