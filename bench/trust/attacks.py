"""Measures another server's calls while one server attacks the proxy.

    python -m bench.trust.attacks [--only NAMES] [--seconds 5] [--foretool COMMAND]

For each attack a `foretool serve` starts on stdio with a server that echoes and a server that attacks
(`tests/support/attacking_upstream.py`, `attacking_http.py`). A client calls the first one every 10 ms for some
seconds, begins the attack where that takes a call, and reads everything that it is sent.

The output is one JSON object for each attack: calls answered, p50, p99 and longest time in ms, the proxy's peak of RSS
in MiB, what the proxy says of the attacker in the end, the answer of the call that began the attack, and whether the
bars hold (p99 under 100 ms, RSS under 200 MiB). The first line is the same without an attack.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import processes
from bench.metrics import quantile
from bench.options import add_foretool, make_parser, split_names
from bench.reports import Row

SUPPORT = Path(__file__).parents[2] / "tests" / "support"
MOST_P99_MS = 100.0
MOST_RSS_MIB = 200.0
START_S = 30.0
TOOL = "good__good_echo"
SETTLE_S = 2.0
"""Pause before the calls that are measured: about a second after its start a proxy loads what no first list needs."""
EACH_S = 0.01
"""A call begins this long after the one before."""
READ_LIMIT = 512 * 1024 * 1024
"""Bytes of one message that the client takes."""


class Attack(NamedTuple):
    """One way to attack."""

    words: Sequence[str] = ()
    """The arguments of the attacking program; none for no attacker."""
    over_http: bool = False
    call: str = ""
    """The tool of the attacker whose call begins the attack."""
    bridged: bool = False
    """Call it through `call_tool`."""
    repeat: int = 1
    """How often it is called."""
    cancel: bool = False
    """Cancel these calls at once."""


def _http(word: str, call: str = "go") -> Attack:
    return Attack((word,), over_http=True, call=call)


ATTACKS: dict[str, Attack] = {
    "none": Attack(),
    "schema-bomb": Attack(("schema-bomb", "--size", "30"), call="bomb_{n}", bridged=True, repeat=30),
    "deep-schema": Attack(("deep-schema",), call="go"),
    "many-tools": Attack(("many-tools", "--delay", "3")),
    "endless-list": Attack(("endless-list",)),
    "long-names": Attack(("long-names", "--delay", "3")),
    "list-changed": Attack(("list-changed",)),
    "progress": Attack(("progress",), call="go"),
    "log": Attack(("log",), call="go"),
    "questions": Attack(("questions",), call="go"),
    "big-reply": Attack(("big-reply",), call="go"),
    "deep-reply": Attack(("deep-reply",), call="go"),
    "stderr": Attack(("stderr",)),
    "endless-line": Attack(("endless-line",)),
    "slow-handshake": Attack(("slow-handshake",)),
    "dying": Attack(("dying",)),
    "long-greeting": Attack(("long-greeting",)),
    "die-in-call": Attack(("die-in-call",), call="go", repeat=50),
    "cancels": Attack(("hang",), call="go", repeat=500, cancel=True),
    "http-gzip": _http("gzip"),
    "http-gzip-list": _http("gzip-list", ""),
    "http-gzip-events": _http("gzip-events"),
    "http-gzip-twice": _http("gzip-twice"),
    "http-error-body": _http("error-body", ""),
    "http-endless-body": _http("endless-body"),
    "http-endless-events": _http("endless-events"),
    "http-endless-event": _http("endless-event"),
    "http-endless-head": _http("endless-head"),
    "http-notices": _http("notices"),
    "http-standalone": _http("standalone", ""),
    "http-drip": _http("drip"),
    "http-redirect": _http("redirect"),
}


class Client:
    """A raw client on the pipes of one proxy."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._last = 0
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.others = 0
        """Messages that were no replies."""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            message = json.loads(line)
            waiting = self._waiting.pop(message.get("id"), None) if "method" not in message else None
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
            else:
                self.others += 1

    def post(self, method: str, params: dict[str, Any]) -> asyncio.Future[dict[str, Any]]:
        self._last += 1
        self._waiting[self._last] = asyncio.get_running_loop().create_future()
        self._write({"id": self._last, "method": method, "params": params})
        return self._waiting[self._last]

    def notify(self, method: str, **params: Any) -> None:
        self._write({"method": method, "params": params})

    def cancel_last(self) -> None:
        self.notify("notifications/cancelled", requestId=self._last, reason="changed my mind")

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def call(self, tool: str, **params: Any) -> asyncio.Future[dict[str, Any]]:
        return self.post("tools/call", {"name": tool, **params})

    async def initialize(self) -> None:
        info = {"name": "bench", "version": "1"}
        capabilities: dict[str, Any] = {"elicitation": {}}
        params = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}
        await self.post("initialize", params)
        self.notify("notifications/initialized")
        await self.post("logging/setLevel", {"level": "debug"})
        await self.post("tools/list", {})

    def close(self) -> None:
        self._reader.cancel()


@contextlib.asynccontextmanager
async def attacker(attack: Attack) -> AsyncIterator[dict[str, Any]]:
    """The config entry of the attacker, which runs as long as the block where it is reached over HTTP."""
    program = str(SUPPORT / ("attacking_http.py" if attack.over_http else "attacking_upstream.py"))
    if not attack.over_http:
        yield {"command": sys.executable, "args": [program, *attack.words]}
        return
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, program, *attack.words, stdout=pipe)
    assert process.stdout is not None
    try:
        port = int(await process.stdout.readline())
        yield {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
    finally:
        process.kill()
        await process.wait()


async def measure(command: Sequence[str], name: str, seconds: float) -> Row:
    """Attack one proxy and call the other server meanwhile."""
    attack = ATTACKS[name]
    with tempfile.TemporaryDirectory(prefix="foretool-attacks-") as folder:
        async with attacker(attack) as entry:
            servers = {"good": processes.upstream("good"), **({"evil": entry} if attack.words else {})}
            config = processes.write_config(Path(folder), servers, log_level="error", cold_list_s=1, bridges="one")
            async with proxy([*command, "serve", "--config", str(config)]) as process:
                client = Client(process)
                try:
                    return {"attack": name, **await under_attack(client, process.pid, attack, seconds)} | {
                        "attacker": says([*command, "status", "--json", "--config", str(config)]),
                        "load": processes.load_average(),
                    }
                finally:
                    client.close()


@contextlib.asynccontextmanager
async def proxy(command: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=READ_LIMIT
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                async with asyncio.timeout(10):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


async def under_attack(client: Client, pid: int, attack: Attack, seconds: float) -> Row:
    async with asyncio.timeout(START_S):
        await client.initialize()
        while "result" not in await client.call(TOOL, arguments={"text": "warm"}):
            await asyncio.sleep(0.1)
    await asyncio.sleep(SETTLE_S)
    begun = [begin(client, attack, number) for number in range(attack.repeat if attack.call else 0)]
    milliseconds, failed = await call_steadily(client, seconds)
    p99, peak = quantile(milliseconds, 0.99), peak_mib(pid)
    return {
        "calls": len(milliseconds),
        "failed": failed,
        "p50_ms": round(quantile(milliseconds, 0.5), 2),
        "p99_ms": round(p99, 2),
        "max_ms": round(max(milliseconds), 1),
        "peak_rss_mib": peak,
        "holds": not failed and p99 < MOST_P99_MS and peak < MOST_RSS_MIB,
        "other_messages": client.others,
        "begun": next((answer_of(one.result()) for one in begun if one.done()), "no answer yet") if begun else "",
    }


async def call_steadily(client: Client, seconds: float) -> tuple[list[float], int]:
    """Call every `EACH_S` seconds, whether or not the last call is answered, so that a pause of ours counts for every
    call that falls into it. Returns the time of each call in ms and how many failed."""
    milliseconds: list[float] = []
    failed = 0

    async def call(due: float) -> None:
        nonlocal failed
        try:
            async with asyncio.timeout(START_S):
                failed += "result" not in await client.call(TOOL, arguments={"text": "hello"})
        except TimeoutError:
            failed += 1
        milliseconds.append((time.perf_counter() - due) * 1000)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as calls:
        for number in range(int(seconds / EACH_S)):
            due = began + number * EACH_S
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            calls.create_task(call(due))
    return milliseconds, failed


def begin(client: Client, attack: Attack, number: int) -> asyncio.Future[dict[str, Any]]:
    called = f"evil__{attack.call.format(n=number)}"
    meta = {"_meta": {"progressToken": f"p{number}"}}
    if attack.bridged:
        asked = client.call("call_tool", arguments={"name": called, "arguments": {"a": "x"}})
    else:
        asked = client.call(called, arguments={}, **meta)
    if attack.cancel:
        client.cancel_last()
    return asked


def answer_of(message: dict[str, Any]) -> str:
    if "error" in message:
        return str(message["error"]["message"])[:120]
    return str(message["result"]["content"][0]["text"])[:120]


def peak_mib(pid: int) -> float:
    """The most memory that a process has had in RAM."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


def says(command: Sequence[str]) -> str:
    """What the proxy says of the attacker."""
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    except subprocess.TimeoutExpired:
        return "status did not answer within 60 s"
    try:
        proxies = json.loads(done.stdout)["proxies"]
    except (ValueError, KeyError):
        return f"status ended with {done.returncode}"
    evil: dict[str, Any] = next(
        (each for proxy in proxies for each in proxy["upstreams"] if each["upstream"] == "evil"), {}
    )
    return ", ".join(f"{key} {evil[key]}" for key in ("state", "tools", "last_error") if evil.get(key))[:200]


async def run(options: argparse.Namespace, names: Sequence[str]) -> None:
    command = processes.installed(options.foretool)
    for name in names:
        try:
            row = await measure(command, name, options.seconds)
        except TimeoutError:
            row = {"attack": name, "holds": False, "begun": f"the other server did not answer within {START_S:g} s"}
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = make_parser("bench.trust.attacks", __doc__)
    parser.add_argument("--only", default=",".join(ATTACKS), help="attacks, by name")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each attack is measured")
    add_foretool(parser)
    options = parser.parse_args()
    asyncio.run(run(options, split_names(parser, "--only", options.only, ATTACKS)))


if __name__ == "__main__":
    main()
