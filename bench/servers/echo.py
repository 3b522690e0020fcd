"""A stand-in upstream on stdio that answers a call with its arguments, stdlib only.

    python -S -E echo.py --name N [--tools FILE.json | --count 10] [--start-s 2] [--call-ms 5] [--hang-if PATH]
        [--change-s 1] [--failure TEXT]

FILE holds a list of tools or an object with `tools`; the upstream serves them as they are. It answers a call with one
line of JSON: `server`, `tool`, `arguments`. With `--change-s` it announces so often that its list has changed, and two
of its descriptions then have. With `--failure` every call fails with this text. It speaks the legacy era, as nearly
every server does today.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]

VERSION = "2025-06-18"
NEVER_S = 86_400.0


def made_up(name: str, count: int) -> list[Json]:
    """Make `count` tools, named `<server>_echo`, `<server>_t1` and so on."""
    text = {"type": "string", "description": "any text"}
    schema = {"type": "object", "properties": {"text": text}}
    names = [f"{name}_echo", *(f"{name}_t{at}" for at in range(1, count))]
    return [
        {"name": each, "description": f"Echoes text, as {each} of {name}.", "inputSchema": schema} for each in names
    ]


def read_tools(path: Path) -> list[Json]:
    """The tools of a `tools/list` result or of a bare list."""
    held = json.loads(path.read_text("utf-8"))
    tools: list[Json] = held["tools"] if isinstance(held, dict) else held
    return tools


def answer(name: str, tools: list[Json], request: Json, failure: str = "") -> Json:
    """The `result` or the `error` of a request; `failure` is what every call fails with."""
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            info = {"name": name, "version": "1.0.0"}
            version = min(params.get("protocolVersion", VERSION), "2025-11-25")
            capabilities = {"tools": {"listChanged": True}}
            return {"result": {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}}
        case "tools/list":
            return {"result": {"tools": tools}}
        case "tools/call" if failure:
            return {"result": {"content": [{"type": "text", "text": failure}], "isError": True}}
        case "tools/call":
            said = {"server": name, "tool": params.get("name"), "arguments": params.get("arguments")}
            return {"result": {"content": [{"type": "text", "text": json.dumps(said)}]}}
        case "ping":
            return {"result": {}}
    return {"error": {"code": -32601, "message": f"no such method: {request['method']}"}}


def serve(name: str, tools: list[Json], call_ms: float = 0.0, failure: str = "") -> None:
    """Answer every request on stdin, until it closes; a call after so many milliseconds."""
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" in request and "method" in request:
            if call_ms and request["method"] == "tools/call":
                time.sleep(call_ms / 1e3)
            reply = {"jsonrpc": "2.0", "id": request["id"], **answer(name, tools, request, failure)}
            out.write(json.dumps(reply, separators=(",", ":")).encode() + b"\n")
            out.flush()


def change(tools: list[Json], every_s: float) -> None:
    """Describe two tools in other words every so often, and announce that."""
    message = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'
    for at in itertools.count():
        time.sleep(every_s)
        for tool in (tools[at % len(tools)], tools[(at + 1) % len(tools)]):
            tool["description"] = f"{tool['description'].partition(' (')[0]} (version {at})"
        sys.stdout.buffer.write(message)
        sys.stdout.buffer.flush()


def main(argv: Sequence[str] | None = None) -> None:
    """Run the upstream that the arguments describe."""
    parser = argparse.ArgumentParser(prog="echo.py", description=__doc__)
    parser.add_argument("--name", default="echo")
    parser.add_argument("--tools", type=Path, help="what tools/list says")
    parser.add_argument("--count", type=int, default=10, help="made-up tools; default %(default)s")
    parser.add_argument("--start-s", type=float, default=0.0, help="seconds before the first line is read")
    parser.add_argument("--hang-if", type=Path, help="never answer anything if there is such a file")
    parser.add_argument("--call-ms", type=float, default=0.0, help="how long a call takes")
    parser.add_argument("--failure", default="", help="what every call fails with; default: none fails")
    parser.add_argument("--change-s", type=float, default=0.0, help="how often the list changes; default: never")
    arguments = parser.parse_args(argv)
    hangs = arguments.hang_if is not None and arguments.hang_if.exists()
    time.sleep(NEVER_S if hangs else arguments.start_s)
    tools = read_tools(arguments.tools) if arguments.tools else made_up(arguments.name, arguments.count)
    if arguments.change_s:
        threading.Thread(target=change, args=(tools, arguments.change_s), daemon=True).start()
    serve(arguments.name, tools, arguments.call_ms, arguments.failure)


if __name__ == "__main__":
    main()
