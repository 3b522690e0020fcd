"""A window's relay between pipes and a proxy that the test plays."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from requirements import requirement

from foretool.server.local import relay as relaying
from foretool.server.local.opening import KeptAnswers, Opening
from foretool.server.local.relay import Finder, Relay, Unshared
from foretool.server.protocol.general_greeting import UNTOLD_LINE


class Proxies:
    """Stands in for `Finder`: each time it is asked, another end of a socket pair."""

    def __init__(self, *ends: socket.socket) -> None:
        self._ends = list(ends)

    def find(self) -> socket.socket:
        if not self._ends:
            raise Unshared("none is left")
        return self._ends.pop(0)


class Kept:
    """Stands in for `KeptAnswers`."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self.find = answers.get
        self.keep = answers.__setitem__


class Window:
    """A relay in a thread, its client's pipes, and the proxies that it gets one after the other."""

    def __init__(self, proxies: int = 1, kept: dict[bytes, bytes] | None = None, early: bytes = b"") -> None:
        """`kept`: answers of earlier windows, by line. `early`: what the client says before there is a proxy."""
        pairs = [socket.socketpair() for _ in range(proxies)]
        self.proxies = [proxy for _, proxy in pairs]
        for proxy in self.proxies:
            proxy.settimeout(10)
        source, to_relay = os.pipe()
        from_relay, output = os.pipe()
        self.input = os.fdopen(to_relay, "wb", buffering=0)
        self.output = os.fdopen(from_relay, "rb")
        self.status: list[int] = []
        finder: Any = Proxies(*(ours for ours, _ in pairs[1:]))
        self.kept: dict[bytes, bytes] = kept or {}
        opening = Opening(cast("KeptAnswers", Kept(self.kept)), source, output)
        self.input.write(early)
        opening.wait(0)
        relay = Relay(finder, opening, source, output)

        def run() -> None:
            self.status.append(relay.run(pairs[0][0]))
            os.close(source)
            os.close(output)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def say(self, **message: Any) -> bytes:
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":")).encode() + b"\n"
        self.input.write(line)
        return line

    def hear(self) -> dict[str, Any]:
        heard: dict[str, Any] = json.loads(self.output.readline())
        return heard

    def end(self) -> int:
        self.thread.join(10)
        (status,) = self.status
        return status

    def close(self) -> None:
        for each in (self.input, self.output, *self.proxies):
            each.close()
        self.thread.join(10)


@pytest.fixture
def windows() -> Iterator[list[Window]]:
    opened: list[Window] = []
    yield opened
    for window in opened:
        window.close()


def opened(windows: list[Window], proxies: int = 1, **early: Any) -> Window:
    windows.append(Window(proxies, **early))
    return windows[-1]


def receive(proxy: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (read := proxy.recv(65536)):
        data += read
    return data


@requirement("windows:one-proxy")
def test_bytes_pass_both_ways_as_they_are(windows: list[Window]) -> None:
    window = opened(windows)
    line = window.say(id=1, method="ping")
    assert receive(window.proxies[0], len(line)) == line
    window.proxies[0].sendall(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
    assert window.hear() == {"jsonrpc": "2.0", "id": 1, "result": {}}
    window.input.close()
    assert window.proxies[0].recv(10) == b""
    window.proxies[0].close()
    assert window.end() == 0


HELLO = b'{"jsonrpc":"2.0","id":0,"method":"initialize"}'
WELCOME = b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}'

DISCOVER = b'{"jsonrpc":"2.0","id":0,"method":"server/discover"}'
DISCOVERED = b'{"jsonrpc":"2.0","id":0,"result":{"supportedVersions":["2026-07-28"]}}'


@requirement("windows:opening")
def test_a_client_that_was_answered_before_there_was_a_proxy_gets_no_second_answer(windows: list[Window]) -> None:
    window = opened(windows, kept={HELLO: WELCOME}, early=HELLO + b"\n")
    assert window.hear()["result"]["protocolVersion"] == "2025-11-25"
    line = window.say(id=1, method="tools/list")
    assert receive(window.proxies[0], len(HELLO) + 1 + len(line)) == HELLO + b"\n" + line
    newer = WELCOME.replace(b"}}", b',"instructions":"new"}}')
    window.proxies[0].sendall(newer + b'\n{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}\n')
    assert window.hear() == {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}
    assert window.kept == {HELLO: newer}


@requirement("windows:opening")
@pytest.mark.parametrize("is_same", [True, False])
def test_a_proxy_is_told_where_its_client_was_greeted_with_other_words(windows: list[Window], is_same: bool) -> None:
    window = opened(windows, kept={DISCOVER: DISCOVERED}, early=DISCOVER + b"\n")
    assert window.hear()["result"]["supportedVersions"] == ["2026-07-28"]
    newer = DISCOVERED if is_same else DISCOVERED.replace(b"}}", b',"instructions":"new"}}')
    assert receive(window.proxies[0], len(DISCOVER) + 1) == DISCOVER + b"\n"
    window.input.write(b'{"jsonrpc":"2.0","id":1,')  # a notice of ours must not break a line of the client
    assert receive(window.proxies[0], 24) == b'{"jsonrpc":"2.0","id":1,'
    window.proxies[0].sendall(newer + b'\n{"jsonrpc":"2.0","method":"notifications/x"}\n')
    assert window.hear() == {"jsonrpc": "2.0", "method": "notifications/x"}
    window.input.write(b'"method":"ping"}\n')
    window.input.close()
    notice = b"" if is_same else UNTOLD_LINE
    assert receive(window.proxies[0], 1000) == b'"method":"ping"}\n' + notice


@requirement("windows:opening", "windows:failover")
def test_a_client_of_the_newest_era_that_has_its_greeting_gets_none_from_the_next_proxy(windows: list[Window]) -> None:
    window = opened(windows, 2, kept={DISCOVER: DISCOVERED}, early=DISCOVER + b"\n")
    assert window.hear()["id"] == 0
    first, second = window.proxies
    assert receive(first, len(DISCOVER) + 1) == DISCOVER + b"\n"
    first.close()
    line = window.say(id=1, method="tools/list")
    assert receive(second, len(line)) == line
    second.sendall(b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}\n')
    assert window.hear()["id"] == 1


@requirement("windows:opening", "windows:failover")
def test_a_proxy_that_ends_before_its_own_greeting_leaves_a_client_that_has_one(windows: list[Window]) -> None:
    window = opened(windows, 2, kept={HELLO: WELCOME}, early=HELLO + b"\n")
    assert window.hear()["id"] == 0
    first, second = window.proxies
    assert receive(first, len(HELLO) + 1) == HELLO + b"\n"
    first.close()
    assert window.hear() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    assert receive(second, len(HELLO) + 1) == HELLO + b"\n"
    second.sendall(WELCOME + b'\n{"jsonrpc":"2.0","method":"notifications/x"}\n')
    assert window.hear() == {"jsonrpc": "2.0", "method": "notifications/x"}


@requirement("windows:opening")
def test_the_answer_of_a_proxy_is_kept_for_the_next_window(windows: list[Window]) -> None:
    window = opened(windows, early=HELLO + b"\n")
    assert receive(window.proxies[0], len(HELLO) + 1) == HELLO + b"\n"
    window.proxies[0].sendall(WELCOME + b"\n")
    assert window.hear()["id"] == 0 and window.kept == {HELLO: WELCOME}


@requirement("windows:failover")
def test_what_has_no_answer_gets_an_error_and_the_next_proxy_is_told_the_greeting(windows: list[Window]) -> None:
    window = opened(windows, 2)
    first, second = window.proxies
    sent = [
        window.say(id=0, method="initialize"), window.say(method="notifications/initialized"),
        window.say(id=1, method="tools/call"), window.say(id="two", method="tools/list"),
    ]  # fmt: skip
    assert receive(first, sum(map(len, sent))) == b"".join(sent)
    first.sendall(b'{"jsonrpc":"2.0","id":0,"result":{}}\n')
    assert window.hear()["id"] == 0
    first.close()
    error = window.hear()
    assert error["id"] == 1 and error["error"]["code"] == -32603
    told = [sent[0], sent[1], sent[3]]
    assert receive(second, sum(map(len, told))) == b"".join(told)
    assert window.hear() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    second.sendall(b'{"jsonrpc":"2.0","id":0,"result":{"again":1}}\n{"jsonrpc":"2.0","id":"two","re')
    second.sendall(b'sult":{"tools":[]}}\n')
    assert window.hear() == {"jsonrpc": "2.0", "id": "two", "result": {"tools": []}}


@requirement("windows:failover")
def test_a_line_of_which_a_proxy_sent_half_is_ended_before_the_error(windows: list[Window]) -> None:
    window = opened(windows, 2)
    first, second = window.proxies
    line = window.say(id=1, method="tools/call")
    receive(first, len(line))
    first.sendall(b'{"jsonrpc":"2.0","id":1,"result":{"te')
    first.close()
    assert window.output.readline() == b'{"jsonrpc":"2.0","id":1,"result":{"te\n'
    assert window.hear()["error"]["code"] == -32603
    line = window.say(id=2, method="tools/call")
    assert receive(second, len(line)) == line


@requirement("windows:failover")
def test_a_request_of_which_a_proxy_got_half_goes_whole_to_the_next(windows: list[Window]) -> None:
    window = opened(windows, 2)
    first, second = window.proxies
    window.input.write(b'{"jsonrpc":"2.0","id":1,')
    receive(first, 24)
    first.close()
    assert receive(second, 24) == b'{"jsonrpc":"2.0","id":1,'
    window.input.write(b'"method":"ping"}\n')
    assert receive(second, 17) == b'"method":"ping"}\n'


@requirement("windows:failover")
def test_the_rest_of_a_long_request_whose_beginning_is_gone_is_left_out(windows: list[Window]) -> None:
    window = opened(windows, 2)
    first, second = window.proxies
    head = b'{"jsonrpc":"2.0","id":1,"method":"x","params":"' + b"y" * 100_000
    threading.Thread(target=window.input.write, args=(head,)).start()
    assert receive(first, len(head)) == head
    first.close()
    assert second.getpeername() == ""
    window.input.write(b'"}\n')
    line = window.say(id=2, method="tools/call")
    assert receive(second, len(line)) == line


@requirement("windows:failover")
def test_a_window_whose_proxies_keep_ending_gives_up_in_one_line(
    windows: list[Window], capsys: pytest.CaptureFixture[str]
) -> None:
    window = opened(windows, relaying.RESTARTS + 1)
    for proxy in window.proxies:
        proxy.close()
    assert window.end() == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "foretool: ERROR: 6 proxies have ended within 60 s; restart this server"
    )


@requirement("windows:failover")
def test_without_another_proxy_the_window_ends_and_says_why(
    windows: list[Window], capsys: pytest.CaptureFixture[str]
) -> None:
    window = opened(windows)
    window.proxies[0].close()
    assert window.end() == 1
    assert "no other proxy could be started (none is left)" in capsys.readouterr().err


def test_a_client_that_reads_nothing_is_not_waited_for(windows: list[Window]) -> None:
    window = opened(windows)
    window.output.close()
    assert window.end() == 0


def test_a_folder_that_cannot_be_made_leaves_the_window_alone(tmp_path: Any) -> None:
    from foretool.server.local.places import ProxyIdentity

    (tmp_path / "file").write_text("")
    folder, wanted = str(tmp_path / "file" / "run"), ProxyIdentity("/mcp.json", "", "/")
    with pytest.raises(Unshared):
        Finder(folder, wanted, Opening(KeptAnswers(folder, wanted, {})), {}).find()
