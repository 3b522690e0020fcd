"""Attacks that want memory, the loop or the client: one server writes more than anybody can use."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from callers import on_the_real_clock
from http_fakes import Notes, notification, request
from requirements import requirement
from served import Served, write_config

from foretool.server.methods.question_limit import MOST_OPEN
from foretool.server.protocol.jsonrpc import Message
from foretool.server.transports.allowance import BURST_S, REPLY_S, SHARE, Allowance, Took
from foretool.server.transports.upstream.base import Link
from foretool.server.transports.upstream.http import HttpLink
from foretool.server.transports.upstream.stdio import Child, ChildWatcher, open_stdio

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[1] / "support"
ECHO = {"command": sys.executable, "args": [str(SUPPORT / "echo_upstream.py")]}
MOST_MIB = 200
MESSAGE_MIB = 8


@contextmanager
def attacking_http(*options: str) -> Iterator[dict[str, Any]]:
    command = [sys.executable, str(SUPPORT / "attacking_http.py"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield {"type": "http", "url": f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"}
        finally:
            process.kill()


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    """Ends whatever a test starts."""
    with ExitStack() as stack:
        yield stack


def serve(tmp_path: Path, cleanup: ExitStack, evil: dict[str, Any] | None) -> Served:
    """A proxy in front of `good`, which echoes, and `evil`, which attacks, if there is one; its client can be asked."""
    tmp_path.mkdir(exist_ok=True)
    servers = {"good": ECHO} if evil is None else {"good": ECHO, "evil": evil}
    served = Served(write_config(tmp_path, servers, max_message_mib=MESSAGE_MIB), "--alone")
    cleanup.callback(lambda: served.process.poll() is None and served.kill())
    info = {"name": "test", "version": "1"}
    capabilities = {"elicitation": {}}
    served.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info})
    served.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
    served.ask("logging/setLevel", {"level": "debug"})
    return served


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A proxy without `evil`."""
    with ExitStack() as stack:
        served = serve(tmp_path_factory.mktemp("control"), stack, None)
        served.list_tools()
        yield served


def over_stdio(*options: str) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SUPPORT / "attacking_upstream.py"), *options]}


def peak_mib(served: Served) -> float:
    """The most memory that the proxy has had in RAM."""
    lines = Path(f"/proc/{served.process.pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def still_serves(served: Served) -> None:
    """Other calls are answered, and the memory stays within its bound."""
    for number in range(20):
        assert served.call("good__echo", {"text": str(number)}) == f'{{"text": "{number}"}}'
    if Path("/proc/self/status").exists():
        assert peak_mib(served) < MOST_MIB


def holds_up_nobody(served: Served, control: Served, seconds: float = 0.4) -> None:
    """In the same seconds, calls of `good` take about as long beside `evil` as they do without it. On a busy machine
    both take long, and what writes without end makes it busier."""
    waits: dict[Served, list[float]] = {served: [], control: []}
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end or number < 50:
        number += 1
        for proxy, waited in waits.items():
            began = time.perf_counter()
            assert proxy.call("good__echo", {"text": str(number)}) == f'{{"text": "{number}"}}'
            waited.append(time.perf_counter() - began)
    slowest, beside = (sorted(waited)[len(waited) * 99 // 100 - 1] for waited in waits.values())
    assert slowest < 5 * beside + 0.3
    still_serves(served)


OVER_HTTP = (
    "tiny-chunks", "tiny-chunks-of-events", "interim", "early-hints", "endless-events", "empty-events", "tiny-events",
    "pings", "standalone-pings",
)  # fmt: skip
ON_PIPES = ("tiny-lines", "pings", "replies", "updates", "long-notices", "giant-notices")


@requirement("trust:limits:floods")
@pytest.mark.parametrize("attack", OVER_HTTP)
def test_whatever_a_remote_server_cuts_its_answer_into_it_holds_up_no_other(
    attack: str, tmp_path: Path, cleanup: ExitStack, control: Served
) -> None:
    served = serve(tmp_path, cleanup, cleanup.enter_context(attacking_http(attack)))
    served.list_tools()
    served.post("tools/call", {"name": "evil__go", "arguments": {}})
    holds_up_nobody(served, control)


@requirement("trust:limits:floods")
@pytest.mark.parametrize("attack", ON_PIPES)
def test_whatever_a_server_writes_on_its_pipe_it_holds_up_no_other(
    attack: str, tmp_path: Path, cleanup: ExitStack, control: Served
) -> None:
    served = serve(tmp_path, cleanup, over_stdio(attack))
    served.list_tools()
    served.post("tools/call", {"name": "evil__go", "arguments": {}})
    holds_up_nobody(served, control)


class Meter(Allowance):
    """An allowance that says when a flood has taken half a second of the processor."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__(clock)
        self.clock = clock
        self.spent_s = 0.0
        self.is_over = asyncio.Event()

    def spend(self, took: Took, free_s: float = 0.0) -> float:
        self.spent_s += took.processor_s
        if self.spent_s > 0.5:
            self.is_over.set()
        return super().spend(took, free_s)


class LeapingMeter(Meter):
    """The same where sockets are read, on a clock of its own, which stands still but for the pauses; those end at
    once."""

    def __init__(self) -> None:
        self.paused_s = 0.0
        super().__init__(lambda: self.paused_s)

    async def wait(self) -> None:
        self.paused_s += self.pause_s
        await asyncio.sleep(0)


class Deaf(Notes):
    """Takes note of answers alone: there is no room for a flood."""

    def on_message(self, message: Message, request: int | None) -> None:
        if message.is_reply and message.id == 1:
            super().on_message(message, request)

    def on_invalid_line(self, line: bytes) -> None:
        pass


async def takes_a_tenth(link: Link, meter: Meter, notes: Notes) -> None:
    """Of the time in which a flood is read, its reading takes a tenth, and the moment of much that everybody has."""
    link.send(request(1, "initialize", protocolVersion="2025-11-25"))
    await notes.told.get()  # no time-out, which the clock would jump to
    link.send(notification("notifications/initialized"))
    began = meter.clock()
    link.send(request(2, "tools/call", name="go", arguments={}))
    await meter.is_over.wait()
    assert meter.spent_s - BURST_S - 10 * REPLY_S < SHARE * (meter.clock() - began)


@requirement("trust:limits:floods")
@pytest.mark.anyio
@pytest.mark.parametrize("attack", ON_PIPES)
async def test_a_flood_on_a_pipe_is_read_in_a_tenth_of_the_time(attack: str) -> None:
    meter, notes, watcher = Meter(asyncio.get_running_loop().time), Deaf(), ChildWatcher()
    entry = over_stdio(attack)
    child = Child(entry["command"], entry["args"], {}, None)
    link = await open_stdio(child, notes, watcher, MESSAGE_MIB * 2**20, allowance=meter)
    try:
        await takes_a_tenth(link, meter, notes)
    finally:
        await link.close()
        watcher.close()


@requirement("trust:limits:floods")
@pytest.mark.anyio
@on_the_real_clock
@pytest.mark.parametrize("attack", OVER_HTTP)
async def test_a_flood_over_http_is_read_in_a_tenth_of_the_time(attack: str, cleanup: ExitStack) -> None:
    evil, meter, notes = cleanup.enter_context(attacking_http(attack)), LeapingMeter(), Deaf()
    link = HttpLink(evil["url"], {}, "legacy", notes, 2**20, allowance=meter)
    try:
        await takes_a_tenth(link, meter, notes)
    finally:
        await link.close()


@requirement("trust:limits:lists", "trust:limits:tools")
@pytest.mark.parametrize(
    "attack",
    ["many-members", "endless-members", "changing-members", "empty-pages", "giant-member", "silent-lists"],
)
def test_whatever_prompts_resources_and_templates_a_server_lists_it_holds_up_no_other(
    attack: str, tmp_path: Path, cleanup: ExitStack, control: Served
) -> None:
    served = serve(tmp_path, cleanup, over_stdio(attack))
    served.list_tools()
    served.post("tools/call", {"name": "evil__go", "arguments": {}})
    for method in ("prompts/list", "resources/list", "resources/templates/list"):
        served.post(method)
    holds_up_nobody(served, control)
    for method, key in (("prompts/list", "prompts"), ("resources/list", "resources")):
        began = time.monotonic()
        assert len(served.ask(method)[key]) <= 1001
        assert time.monotonic() - began < 10
    assert sum(file.stat().st_size for file in tmp_path.glob("store.sqlite3*")) < 12 * 2**20


@requirement("trust:limits:bodies")
@pytest.mark.parametrize(
    ("attack", "reason"),
    [
        ("gzip", "raise max_message_mib"),
        ("gzip-events", "raise max_message_mib"),
        ("gzip-twice", "content-encoding"),
        ("endless-body", "raise max_message_mib"),
        ("endless-event", "raise max_message_mib"),
        ("endless-head", "broke off"),
        ("redirect", "not followed"),
    ],
)
def test_a_body_over_http_is_cut_off_at_the_size_of_a_message(
    attack: str, reason: str, tmp_path: Path, cleanup: ExitStack
) -> None:
    served = serve(tmp_path, cleanup, cleanup.enter_context(attacking_http(attack, "--size", "256")))
    refused = served.ask("tools/call", {"name": "evil__go", "arguments": {}})
    assert refused["isError"] is True
    assert reason in refused["content"][0]["text"]
    still_serves(served)


@requirement("trust:limits:bodies")
@pytest.mark.parametrize("attack", ["gzip-list", "error-body"])
def test_a_list_or_an_error_of_any_size_costs_its_server_alone(attack: str, tmp_path: Path, cleanup: ExitStack) -> None:
    served = serve(tmp_path, cleanup, cleanup.enter_context(attacking_http(attack, "--size", "256")))
    assert served.list_tools()
    still_serves(served)


@requirement("trust:limits:floods")
@pytest.mark.parametrize("attack", ["endless-events", "notices", "standalone", "drip"])
def test_a_stream_without_end_holds_up_no_other_server(attack: str, tmp_path: Path, cleanup: ExitStack) -> None:
    served = serve(tmp_path, cleanup, cleanup.enter_context(attacking_http(attack)))
    served.post("tools/call", {"name": "evil__go", "arguments": {}})
    still_serves(served)


@requirement("trust:limits:floods")
@pytest.mark.parametrize("attack", ["progress", "endless-line", "stderr", "dying", "list-changed", "big-reply"])
def test_a_flood_on_pipes_holds_up_no_other_server(attack: str, tmp_path: Path, cleanup: ExitStack) -> None:
    served = serve(tmp_path, cleanup, over_stdio(attack))
    served.post("tools/call", {"name": "evil__go", "arguments": {}, "_meta": {"progressToken": "p"}})
    still_serves(served)


@requirement("limits:size")
@pytest.mark.parametrize("attack", ["big-reply", "late-id"])
def test_an_answer_that_is_too_large_is_refused_in_words_wherever_its_id_stands(
    attack: str, tmp_path: Path, cleanup: ExitStack
) -> None:
    served = serve(tmp_path, cleanup, over_stdio(attack, "--size", str(2 * MESSAGE_MIB)))
    refused = served.ask("tools/call", {"name": "evil__go", "arguments": {}})
    assert refused["isError"] is True
    assert "larger than 8 MiB; raise max_message_mib" in refused["content"][0]["text"]
    still_serves(served)


def spent_s(served: Served) -> float:
    """Seconds of the processor that the proxy has taken so far."""
    spent = Path(f"/proc/{served.process.pid}/stat").read_text("ascii").rpartition(")")[2].split()[11:13]
    return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


@requirement("trust:limits:floods", "call:error-verbatim")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the time of a process cannot be told")
def test_the_data_of_an_error_is_passed_on_and_not_taken_apart(tmp_path: Path, cleanup: ExitStack) -> None:
    served = serve(tmp_path, cleanup, over_stdio("wide-error"))
    served.list_tools()
    before = spent_s(served)
    reply = served.reply(served.post("tools/call", {"name": "evil__go", "arguments": {}}))
    assert (reply["error"]["code"], len(reply["error"]["data"])) == (-32000, 400_000)
    assert spent_s(served) - before < 0.4


@requirement("trust:limits:floods", "call:verbatim")
@pytest.mark.parametrize(("attack", "times", "most_s"), [("wide-structure", 4, 0.5), ("wide-surrogates", 1, 1.0)])
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the time of a process cannot be told")
def test_structured_content_of_half_a_million_members_is_passed_on_and_not_taken_apart(
    tmp_path: Path, cleanup: ExitStack, attack: str, times: int, most_s: float
) -> None:
    served = serve(tmp_path, cleanup, over_stdio(attack))
    served.list_tools()
    before = spent_s(served)
    for _ in range(times):
        assert len(served.ask("tools/call", {"name": "evil__go", "arguments": {}})["structuredContent"]) == 500_000
    assert spent_s(served) - before < most_s


@requirement("trust:limits:logs")
def test_of_a_flood_of_log_entries_clients_see_some_and_how_many_were_left_out(
    tmp_path: Path, cleanup: ExitStack
) -> None:
    served = serve(tmp_path, cleanup, over_stdio("log"))
    served.post("tools/call", {"name": "evil__go", "arguments": {}})
    still_serves(served)
    while not any("were left out" in str(message.get("params", {}).get("data")) for message in served.seen):
        served.next()


@requirement("trust:limits:questions")
def test_of_a_flood_of_questions_clients_see_a_few(tmp_path: Path, cleanup: ExitStack) -> None:
    served = serve(tmp_path, cleanup, over_stdio("questions"))
    served.post("tools/call", {"name": "evil__go", "arguments": {}})
    still_serves(served)
    asked = [message for message in served.seen if message.get("method") == "elicitation/create"]
    assert len(asked) <= MOST_OPEN


@requirement("trust:limits:greeting")
def test_what_a_server_says_of_itself_fills_neither_the_memory_nor_the_store(
    tmp_path: Path, cleanup: ExitStack
) -> None:
    served = serve(tmp_path, cleanup, over_stdio("long-greeting"))
    served.list_tools()
    still_serves(served)
    assert served.leave() == 0
    assert sum(file.stat().st_size for file in tmp_path.glob("store.sqlite3*")) < 2**20


@requirement("trust:limits:tools")
@pytest.mark.parametrize("attack", ["many-tools", "endless-list", "long-names", "deep-schema"])
def test_a_list_without_end_holds_up_no_other_server(attack: str, tmp_path: Path, cleanup: ExitStack) -> None:
    served = serve(tmp_path, cleanup, over_stdio(attack))
    served.list_tools()
    still_serves(served)
