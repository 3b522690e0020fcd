"""An MCP server on stdio, of the legacy era, that misbehaves on demand; for tests with real processes.

python unruly_upstream.py [--pids FILE] [--stubborn] [--helper] [--sleep S] [--garbage N] [--flood FILE] [--exit]
    [--bad-list]

To a client that can be asked, or that has roots, it lists one tool more.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pids", help="append the ids of its processes to this file")
    parser.add_argument("--stubborn", action="store_true", help="go on after the end of input, and ignore SIGTERM")
    parser.add_argument("--helper", action="store_true", help="start a child through a shell, as npx does")
    parser.add_argument("--sleep", type=float, default=0, help="seconds before it reads anything")
    parser.add_argument("--garbage", type=int, default=0, help="lines of no protocol before each answer")
    parser.add_argument("--flood", type=Path, help="a call of `flood` floods stdout until this file is there")
    parser.add_argument("--exit", action="store_true", help="say why on stderr, and exit")
    parser.add_argument("--bad-list", action="store_true", help="answer tools/list with nonsense")
    options = parser.parse_args()
    if options.pids:
        note(options.pids, os.getpid())
    if options.exit:
        sys.exit("UNRULY_TOKEN is not set")
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.helper:
        helper = subprocess.Popen(["/bin/sh", "-c", "sleep 1000 & echo $!; wait"], stdout=subprocess.PIPE, text=True)
        note(options.pids, helper.pid)
        note(options.pids, int(helper.stdout.readline()))
    time.sleep(options.sleep)
    options.can = {}
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            say("\n".join([f"garbage {n}: not protocol" for n in range(options.garbage)]))
            say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message, options)}))
    while options.stubborn:
        time.sleep(100)


def answer(message: dict, options: argparse.Namespace) -> dict:
    match message["method"]:
        case "initialize":
            version, options.can = message["params"]["protocolVersion"], message["params"]["capabilities"]
            info = {"name": "unruly", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list" if options.bad_list:
            return {"tools": "none of your business"}
        case "tools/list":
            schema = {"type": "object"}
            more = [tool for tool, need in (("ask", "elicitation"), ("roots", "roots")) if need in options.can]
            return {"tools": [{"name": name, "inputSchema": schema} for name in ("echo", "flood", "hang", *more)]}
        case "tools/call" if message["params"]["name"] == "flood":
            while not options.flood.exists():
                say("x" * 200 + "\n" + "y" * 200)
        case "tools/call" if message["params"]["name"] == "hang":
            time.sleep(message["params"].get("arguments", {}).get("s", 1000))
        case "tools/call" if message["params"]["name"] == "roots":
            say(json.dumps({"jsonrpc": "2.0", "id": "folders", "method": "roots/list"}))
            answered = next(each for each in map(json.loads, sys.stdin) if each.get("id") == "folders")
            return {"content": [{"type": "text", "text": answered.get("error", {}).get("message", "told")}]}
    return {"content": [{"type": "text", "text": json.dumps(message["params"].get("arguments"))}]}


def say(line: str) -> None:
    if line:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def note(path: str, pid: int) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(f"{pid}\n")


if __name__ == "__main__":
    main()
