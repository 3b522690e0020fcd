"""Flows are counted by the fields they connect, whichever proxy saw them."""

from __future__ import annotations

from foretool.storage.opening import open_store
from foretool.storage.records import Flow, ToolId

LOGIN, POST, LIST = ToolId("u__login"), ToolId("u__post"), ToolId("u__list")


def test_a_repeated_flow_is_counted_and_the_most_frequent_flow_comes_first() -> None:
    with open_store(":memory:") as store:
        flows = store.flows
        flows.add({(LOGIN, POST, "token", "token"): 1, (LIST, POST, "", "id"): 2}, 10.0)
        flows.add({(LOGIN, POST, "token", "token"): 2}, 20.0)
        assert flows.all() == [
            Flow(LOGIN, POST, "token", "token", 3, 20.0),
            Flow(LIST, POST, "", "id", 2, 10.0),
        ]


def test_pruning_deletes_flows_that_were_not_seen_for_long() -> None:
    with open_store(":memory:") as store:
        flows = store.flows
        flows.add({(LOGIN, POST, "token", "token"): 1}, 10.0)
        flows.add({(LIST, POST, "id", "id"): 1}, 20.0)
        flows.prune(15.0)
        assert [flow.before for flow in flows.all()] == [LIST]
