"""The arguments of `discover_tools`."""

from __future__ import annotations

from typing import Any

import pytest
from requirements import requirement

from foretool.retrieval.ranking import Query
from foretool.server.discovery import arguments as discovery_arguments
from foretool.server.protocol.jsonrpc import RpcError, raw
from foretool.storage.records import ToolId


@pytest.mark.parametrize("arguments", [5, [], {"names": 5}, {"task": {}}, {"limit": "many"}])
def test_wrong_arguments_say_what_is_wrong(arguments: Any) -> None:
    with pytest.raises(RpcError, match="discover_tools"):
        discovery_arguments.read_arguments(raw(arguments))


@requirement("trust:client:bounded-search")
@pytest.mark.parametrize(
    "arguments",
    [{"task": "word " * 4_001}, {"names": ["one"] * 51}, {"names": ["x" * 257]}, {"task": "\ud800" * 20_001}],
)
def test_a_search_of_more_than_one_may_take_is_refused(arguments: Any) -> None:
    with pytest.raises(RpcError, match="expected at most"):
        discovery_arguments.read_arguments(raw(arguments))


def test_unknown_arguments_are_passed_over_and_numbers_may_be_text() -> None:
    read = discovery_arguments.read_arguments(raw({"task": "x", "limit": "3", "reason": "why not"}))
    assert (read.task, read.wanted) == ("x", 3)


@pytest.mark.parametrize(
    ("given", "task"), [({"query": "x"}, "x"), ({"task": None, "query": "x"}, "x"), ({"task": "y", "query": "x"}, "y")]
)
def test_a_task_may_be_called_query_as_elsewhere(given: Any, task: str) -> None:
    assert discovery_arguments.read_arguments(raw(given)).task == task


def test_a_query_holds_the_lines_or_else_the_names_and_what_was_called() -> None:
    read = discovery_arguments.read_arguments(raw({"task": "a\n b ", "names": ["x"]}))
    assert discovery_arguments.query(read, (ToolId("t"),), ("s",)) == Query(("a", "b"), (), (ToolId("t"),), ("s",))
    read = discovery_arguments.read_arguments(raw({"names": ["x"]}))
    assert discovery_arguments.query(read, (), ()) == Query((), ("x",), (), ())
