"""Which requests a relay takes for unanswered, without decoding them."""

from __future__ import annotations

import json

from requirements import requirement

from foretool.server.local.wire import MOST_LINE, Lines, Pending
from foretool.server.protocol.cut_lines import END


@requirement("windows:failover")
def test_of_a_long_line_both_ends_are_kept() -> None:
    lines = Lines()
    head, tail = b'{"jsonrpc":"2.0","id":1,"method":"', b'","x":1}'
    data = head + b"y" * (3 * MOST_LINE) + tail + b"\n" + b"rest"
    found = [each for at in range(0, len(data), 5_000) for each in lines.feed(data[at : at + 5_000])]
    ((line, is_cut),) = found
    assert is_cut and line.startswith(head) and line.endswith(tail) and len(line) == 2 * END
    assert lines.open == b"rest" and not lines.is_cut


def say(pending: Pending, **members: object) -> None:
    pending.asked(json.dumps({"jsonrpc": "2.0", **members}).encode(), False)


@requirement("windows:failover")
def test_requests_are_open_until_they_are_answered() -> None:
    pending = Pending()
    say(pending, id=1, method="initialize")
    say(pending, method="notifications/initialized")
    say(pending, id=2, method="tools/call")
    say(pending, id=3, method="tools/list")
    say(pending, id="foretool-1", result={})  # an answer to a question of the proxy
    assert list(pending.ids) == [b"1", b"2", b"3"] and list(pending.repeatable) == [b"3"]
    assert pending.answered(b'{"jsonrpc":"2.0","id":2,"result":{}}', False) == b"2"
    assert pending.answered(b'{"jsonrpc":"2.0","id":2,"result":{}}', False) is None
    assert pending.answered(b'{"jsonrpc":"2.0","method":"notifications/message","params":{"id":3}}', False) is None
    assert pending.answered(b'{"jsonrpc":"2.0","id":3,"error":{}}', False) == b"3"
    assert list(pending.ids) == [b"1"] and pending.repeatable == {}


@requirement("windows:failover")
def test_a_new_proxy_is_told_the_log_level_and_the_subscriptions_that_hold() -> None:
    pending = Pending()
    say(pending, id=1, method="initialize")
    say(pending, id=2, method="logging/setLevel", params={"level": "debug"})
    say(pending, id=3, method="resources/subscribe", params={"uri": "a:1"})
    say(pending, id=4, method="resources/subscribe", params={"uri": "a:2"})
    say(pending, id=5, method="resources/unsubscribe", params={"uri": "a:1"})
    say(pending, id=6, method="tools/call", params={"arguments": {"x": "resources/subscribe"}})
    assert pending.hello is not None and pending.hello[1] == b"1"
    assert [ident for _, ident in pending.notes.values()] == [b"2", b"4"]
