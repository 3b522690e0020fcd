"""The user's words in place of a server's: names, texts, pins, and what is refused."""

from __future__ import annotations

from typing import Any

from fakes import FakeUpstream, config_of, tool

from foretool.server.catalog.catalog import Catalog
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import raw
from foretool.storage.records import Tool


def server(name: str, entries: dict[str, Any] | None = None, **entry: Any) -> FakeUpstream:
    return FakeUpstream(name, entry={**entry, "tools": entries or {}})


def catalog(*upstreams: FakeUpstream) -> Catalog:
    return Catalog(list(config_of(*upstreams).servers.values()))


def listed(*tools: Any) -> list[Any]:
    return [raw(tool(each) if isinstance(each, str) else each) for each in tools]


def words(one: Tool) -> tuple[Any, Any]:
    fields = jsonrpc.decode_value(raw(jsonrpc.fields(one.definition)))
    return fields.get("title"), fields.get("description")


def test_a_name_that_another_tool_has_is_not_taken_from_it() -> None:
    one = catalog(server("hub"))
    one.replace("hub", listed("create", "new"))
    one.fix_names()
    one.configure(list(config_of(server("hub", {"create": {"name": "new"}})).servers.values()))
    assert {each.name: each.id for each in one.of("hub")} == {"create": "hub__create", "new": "hub__new"}
    assert one.problems_of("hub") == (
        """"tools": 'create' is shown as hub__create: the name 'new' belongs to another tool; choose another name""",
    )


def test_a_server_that_lists_a_tool_by_the_users_name_does_not_get_it() -> None:
    """A call of the user's name reaches the tool that the user meant, whatever the server lists, and in any order."""
    for fixed in (False, True):
        one = catalog(server("hub", {"create": {"name": "new"}}))
        one.replace("hub", listed("create"))
        if fixed:
            one.fix_names()
        one.replace("hub", listed("new", "create"))
        assert one.find("hub__new").name == "create"  # type: ignore[union-attr]
        one.fix_names()
        one.replace("hub", listed("new"))  # the tool is gone: its name means nothing else
        assert one.get(one.of("hub")[0].id).id.startswith("hub__new_")  # type: ignore[union-attr]
        assert one.find("hub__new") is None


def test_a_name_cannot_reach_behind_another_servers_prefix() -> None:
    for entry, name, shown in (({}, "evil__pay", "a__x"), ({"prefix": ""}, "a__evil__pay", "x")):
        names = {"x": {"name": name if entry else "evil__pay"}}
        one = catalog(server("a", names, **entry), FakeUpstream("a__evil"))
        one.replace("a__evil", listed("pay"))
        one.replace("a", listed("x"))
        assert one.find("a__evil__pay").upstream == "a__evil"  # type: ignore[union-attr]
        assert one.of("a")[0].id == shown
        (problem,) = one.problems_of("a")
        assert "cannot be its name" in problem


def test_an_entry_for_a_tool_of_another_server_is_reported_and_changes_nothing() -> None:
    one = catalog(
        server("a", {"mail__send": {"description": "Mine"}, "send": {"description": "Mine"}}), FakeUpstream("mail")
    )
    one.replace("mail", listed(tool("send", "Theirs")))
    one.replace("a", listed("x"))
    assert words(one.of("mail")[0]) == (None, "Theirs")
    assert [problem.split(";")[0] for problem in one.problems_of("a")] == [
        """"tools": it has no tool 'mail__send'""",
        """"tools": it has no tool 'send'""",
    ]


def test_a_name_too_long_beside_its_prefix_is_reported() -> None:
    one = catalog(server("hub", {"x": {"name": "n" * 49}}))
    one.replace("hub", listed("x"))
    (problem,) = one.problems_of("hub")
    assert "too long" in problem
    assert len(one.of("hub")[0].id) <= 49


def test_two_entries_with_one_name_give_it_to_the_first() -> None:
    one = catalog(server("hub", {"a": {"name": "n"}, "b": {"name": "n"}}))
    one.replace("hub", listed("a", "b"))
    assert [each.id for each in one.of("hub")] == ["hub__n", "hub__b"]
    assert len(one.problems_of("hub")) == 1


def test_invisible_characters_of_the_users_texts_do_not_leave() -> None:
    one = catalog(server("hub", {"x": {"description": "a\u200bb\U000e0041"}}))
    one.replace("hub", listed("x"))
    assert words(one.of("hub")[0])[1] == "ab"
