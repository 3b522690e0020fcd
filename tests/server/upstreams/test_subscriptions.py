"""What an upstream is told that clients want to hear of; `tests/scenarios/test_subscriptions.py` has the whole way."""

from __future__ import annotations

from typing import Any, cast

from foretool.server.upstreams.connection import Connection
from foretool.server.upstreams.subscriptions import UpstreamSubscriptions
from foretool.storage.records import Era

Told = tuple[str, dict[str, Any]]


class Connected:
    """A connection that takes notes."""

    ready = True

    def __init__(self, era: Era) -> None:
        self.era = era
        self.told: list[Told] = []
        self.cancelled: list[object] = []

    def tell(self, method: str, params: dict[str, Any], reply: object = None) -> object:
        self.told.append((method, params))
        return len(self.told)

    def cancel(self, request: object, reason: str) -> None:
        self.cancelled.append(request)


def over(connection: Connected) -> UpstreamSubscriptions:
    ready = cast(Connection, connection)
    return UpstreamSubscriptions(lambda era: ready if era == connection.era else None, lambda missed: None)


def test_a_legacy_connection_is_told_of_each_resource_once_and_again_after_a_restart() -> None:
    connection = Connected("legacy")
    subscriptions = over(connection)
    subscriptions.add("legacy", ["a", "b"])
    subscriptions.add("legacy", ["a"])
    subscriptions.add("legacy", ["c"], asked=True)
    subscriptions.remove("legacy", ["b"])
    subscriptions.set_level("info")
    told: list[Told] = [
        ("resources/subscribe", {"uri": "a"}),
        ("resources/subscribe", {"uri": "b"}),
        ("resources/unsubscribe", {"uri": "b"}),
        ("logging/setLevel", {"level": "info"}),
    ]
    assert connection.told == told
    assert ("c" in subscriptions, "b" in subscriptions) == (True, False)
    again = Connected("legacy")
    subscriptions.renew(cast(Connection, again))
    assert again.told == [
        ("logging/setLevel", {"level": "info"}),
        ("resources/subscribe", {"uri": "a"}),
        ("resources/subscribe", {"uri": "c"}),
    ]
