"""The filter of `subscriptions/listen`. Whole conversations: tests/scenarios/test_subscriptions.py."""

from __future__ import annotations

from foretool.server.methods.subscriptions import honoured_filter


def test_only_what_we_serve_of_a_listen_filter_is_honoured() -> None:
    wanted = {"toolsListChanged": True, "promptsListChanged": "yes", "resourceSubscriptions": ["a", 5], "x": True}
    assert honoured_filter(wanted) == {"toolsListChanged": True, "resourceSubscriptions": ["a"]}
    assert honoured_filter({"resourceSubscriptions": "a"}) == {}
