"""An MCP server on stdio that says very much, or stops listening; for tests with real processes."""

import json
import os
import sys
import threading
import time

NAMES = ("echo", "flood", "big", "deaf")
lock = threading.Lock()


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message:
            continue
        if message["method"] == "tools/call":
            # Its own thread, so that a write that blocks keeps nothing else from being read.
            threading.Thread(target=call, args=(message,), daemon=True).start()
            if message["params"]["name"] == "deaf":
                time.sleep(1000)
        else:
            reply(message, answer(message))


def answer(message: dict) -> dict:
    match message["method"]:
        case "initialize":
            info = {"name": "greedy", "version": "1"}
            version = message["params"]["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}, "logging": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]}
    return {}


def call(message: dict) -> None:
    params = message["params"]
    arguments, text = params["arguments"], str(os.getpid())
    if params["name"] == "flood":
        token = params["_meta"]["progressToken"]
        for at in range(arguments["kib"]):
            say("notifications/progress", {"progressToken": token, "progress": at, "message": "x" * 512})
            say("notifications/message", {"level": "info", "data": "y" * 512})
    if params["name"] == "big":
        text = "z" * (1024 * arguments["kib"])
    reply(message, {"content": [{"type": "text", "text": text}]})


def reply(message: dict, result: dict) -> None:
    write({"jsonrpc": "2.0", "id": message["id"], "result": result})


def say(method: str, params: dict) -> None:
    write({"jsonrpc": "2.0", "method": method, "params": params})


def write(message: dict) -> None:
    with lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
