"""A small MCP server on stdio, of the legacy era, for tests that start real processes.

python echo_upstream.py [--tools N] [--listed FILE] [--refuse N] [--noise] [--silent] [--die WORDS] [--broken-tool]
    [--long-name]
"""

import argparse
import json
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=int, default=2)
    parser.add_argument("--listed", type=Path, help="definitions to list instead, in JSON")
    parser.add_argument("--refuse", type=int, default=0, help="fail so many times to list")
    parser.add_argument("--noise", action="store_true", help="write lines that are no protocol to stdout")
    parser.add_argument("--silent", action="store_true", help="never answer")
    parser.add_argument("--die", default="", help="say so on stderr and exit")
    parser.add_argument("--broken-tool", action="store_true", help="list a tool that has no schema as well")
    parser.add_argument("--long-name", action="store_true", help="list a tool with a long name as well")
    parser.add_argument("--declares", default="tools", help="the one capability that it has")
    options = parser.parse_args()
    if options.die:
        sys.exit(options.die)
    for line in sys.stdin:
        if options.noise:
            say("this is no protocol")
        message = json.loads(line)
        if "id" in message and not options.silent:
            say(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message, options)}))


def answer(message: dict, options: argparse.Namespace) -> dict:
    match message["method"]:
        case "initialize":
            info = {"name": "echo", "version": "1.2"}
            version = message["params"]["protocolVersion"]
            return {"result": {"protocolVersion": version, "capabilities": {options.declares: {}}, "serverInfo": info}}
        case "tools/list" if options.refuse > 0:
            options.refuse -= 1
            return {"error": {"code": -32000, "message": "log in first"}}
        case "tools/list":
            return {"result": {"tools": tools(options)}}
        case "tools/call":
            text = json.dumps(message["params"].get("arguments"))
            return {"result": {"content": [{"type": "text", "text": text}]}}
        case method:
            return {"error": {"code": -32601, "message": f"no method {method}"}}


def tools(options: argparse.Namespace) -> list[dict]:
    if options.listed:
        return json.loads(options.listed.read_text(encoding="utf-8"))
    text = {"type": "object", "properties": {"text": {"type": "string", "description": "what to say back"}}}
    named = [("echo", "Says back what it is told."), ("weather", "Forecast of the weather for a city.")]
    listed = [{"name": name, "description": words, "inputSchema": text} for name, words in named[: options.tools]]
    listed += [{"name": f"tool_{number}", "inputSchema": text} for number in range(2, options.tools)]
    listed += [{"name": "broken"}] if options.broken_tool else []
    listed += [{"name": "a_name_" * 8, "inputSchema": text}] if options.long_name else []
    return listed


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
