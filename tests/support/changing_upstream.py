"""An MCP server of the legacy era that lists what a file says now: on stdio, or over HTTP with `--port-file`.

python changing_upstream.py TOOLS_JSON [--zone NAME] [--port-file FILE]

The file holds `instructions`, `tools` and `version`. On stdio a tool with `needs` is listed to a client that declares
this capability. Descriptions end in the name of a zone, if one is given. Only the standard library, so that it starts
fast.
"""

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def answer(message: dict[str, Any], said: dict[str, Any]) -> dict[str, Any] | None:
    if "id" not in message:
        return None
    results: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "changing", "version": said.get("version", "1")},
            "instructions": said.get("instructions", ""),
        },
        "tools/list": {"tools": said["tools"]},
        "tools/call": {"content": [{"type": "text", "text": "called"}]},
        "ping": {},
    }
    head = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in results:
        return {**head, "result": results[message["method"]]}
    return {**head, "error": {"code": -32601, "message": "Method not found"}}


def read(options: argparse.Namespace) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(options.tools.read_text())
    if options.zone:
        said["tools"] = [{**tool, "description": f"{tool['description']} in {options.zone}"} for tool in said["tools"]]
    return said


def serve_http(options: argparse.Namespace) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = answer(message, read(options))
            body = b"" if reply is None else json.dumps(reply).encode()
            self.send_response(202 if reply is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_error(405)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    options.port_file.write_text(str(server.server_address[1]))
    server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tools", type=Path)
    parser.add_argument("--zone", default="")
    parser.add_argument("--port-file", type=Path)
    options = parser.parse_args()
    if options.port_file:
        serve_http(options)
        return
    declared: dict[str, Any] = {}
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "initialize":
            declared = message["params"]["capabilities"]
        said = read(options)
        said["tools"] = [tool for tool in said["tools"] if tool.pop("needs", "") in ("", *declared)]
        reply = answer(message, said)
        if reply is not None:
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
