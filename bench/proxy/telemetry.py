"""Measures what telemetry costs a call, off and on.

    python -m bench.proxy.telemetry [--calls 2000] [--rounds 7] [--foretool COMMAND]

One echo server stands behind three proxies on stdio: without telemetry, with `telemetry: on`, and with it on where the
collector takes connections and never answers. They are called in turns. The output is one JSON object for each: the
CPU time of the proxy's process for a call in microseconds, and the time until the answer in milliseconds (medians of
the rounds). Needs `pip install 'foretool[otel]'`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import statistics
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from bench.clients.stdio import StdioClient
from bench.options import add_foretool, make_parser
from bench.processes import cpu_s, installed, upstream, write_config

TOOL = "up__up_echo"
WAYS = ("off", "on", "stuck")


class Swallow(BaseHTTPRequestHandler):
    """A collector that takes everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


async def measure(folder: Path, command: list[str], calls: int, rounds: int, addresses: dict[str, str]) -> None:
    clients: dict[str, StdioClient] = {}
    found: dict[str, tuple[list[float], list[float]]] = {way: ([], []) for way in WAYS}
    async with contextlib.AsyncExitStack() as stack:
        for way in WAYS:
            home = folder / way
            home.mkdir()
            config = write_config(home, {"up": upstream("up")}, telemetry="off" if way == "off" else "on", share=False)
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = addresses[way]
            client = clients[way] = await stack.enter_async_context(StdioClient.serve(command, config))
            await client.initialize()
            await client.tools()
            for _ in range(100):
                await client.call(TOOL, {"text": "x"})
        for _ in range(rounds):
            for way, client in clients.items():
                cpu, at = cpu_s(client.pid), time.perf_counter()
                for _ in range(calls):
                    await client.call(TOOL, {"text": "x"})
                took = time.perf_counter() - at
                found[way][0].append((cpu_s(client.pid) - cpu) / calls * 1e6)
                found[way][1].append(took / calls * 1e3)
    for way, (cpus, times) in found.items():
        row = {"telemetry": way, "cpu_us": round(statistics.median(cpus)), "ms": round(statistics.median(times), 3)}
        print(json.dumps(row))


def main(arguments: list[str] | None = None) -> None:
    parser = make_parser("bench.proxy.telemetry", __doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    add_foretool(parser)
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        taking = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Swallow))
        stuck = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        thread = Thread(target=taking.serve_forever, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(taking.shutdown)
        addresses = {
            "off": "",
            "on": f"http://127.0.0.1:{taking.server_address[1]}",
            "stuck": f"http://127.0.0.1:{stuck.getsockname()[1]}",
        }
        command = installed(options.foretool)
        asyncio.run(measure(Path(folder), command, options.calls, options.rounds, addresses))


if __name__ == "__main__":
    main()
