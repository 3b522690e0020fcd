"""A stand-in upstream on stdio whose one tool answers with so many bytes, stdlib only: `python -S -E large.py`.

`answer` takes `mb`, the size of the text; `is_last` puts the id behind the result, as the TypeScript SDK does; `wide`
is the share of its bytes that are not ASCII. `--tools MB` makes a `tools/list` of that size.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Final

MEGA: Final = 1_000_000
SCHEMA: Final = {"type": "object", "properties": {"mb": {"type": "number"}}}


def make_tools(mb: float) -> list[dict[str, Any]]:
    """Make `answer`, and tools of 2,000 bytes until the list has its size."""
    text = "Does one of very many things. " * 60
    more = [{"name": f"t{at}", "description": text, "inputSchema": SCHEMA} for at in range(int(mb * 500))]
    return [{"name": "answer", "description": "Answers with text.", "inputSchema": SCHEMA}, *more]


def write_answer(ident: object, arguments: dict[str, Any]) -> None:
    """Write the reply in pieces, so that this process needs no memory for it."""
    out = sys.stdout.buffer
    head, tail = b'{"content":[{"type":"text","text":"', b'"}]}'
    said = json.dumps(ident).encode()
    first = b'{"result":' if arguments.get("is_last") else b'{"jsonrpc":"2.0","id":%b,"result":' % said
    last = b',"jsonrpc":"2.0","id":%b}\n' % said if arguments.get("is_last") else b"}\n"
    wide = int(float(arguments.get("wide") or 0) * MEGA)
    piece = b"a" * (MEGA - wide) + "é".encode() * (wide // 2)
    out.write(first + head)
    for _ in range(int(arguments["mb"])):
        out.write(piece)
    out.write(tail + last)
    out.flush()


def main() -> None:
    """Answer every request on stdin, until it closes."""
    parser = argparse.ArgumentParser(prog="large.py", description=__doc__)
    parser.add_argument("--tools", type=float, default=0.0, help="megabytes of tools/list")
    tools = make_tools(parser.parse_args().tools)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request:
            continue
        params = request.get("params") or {}
        if request["method"] == "tools/call":
            write_answer(request["id"], params.get("arguments") or {"mb": 0})
            continue
        info = {"name": "large", "version": "1"}
        found: dict[str, dict[str, Any]] = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info},
            "tools/list": {"tools": tools},
            "ping": {},
        }
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        if (result := found.get(request["method"])) is None:
            reply["error"] = {"code": -32601, "message": f"no such method: {request['method']}"}
        else:
            reply["result"] = result
        sys.stdout.buffer.write(json.dumps(reply, separators=(",", ":")).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
