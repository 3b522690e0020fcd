"""The arguments of `discover_tools`."""

from __future__ import annotations

from typing import Any

import pytest
from requirements import requirement

from foretool.server.discovery import arguments as discovery_arguments
from foretool.server.protocol.jsonrpc import RpcError, raw


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


@pytest.mark.parametrize(
    ("given", "task"), [({"query": "x"}, "x"), ({"task": None, "query": "x"}, "x"), ({"task": "y", "query": "x"}, "y")]
)
def test_a_task_may_be_called_query_as_elsewhere(given: Any, task: str) -> None:
    assert discovery_arguments.read_arguments(raw(given)).task == task
