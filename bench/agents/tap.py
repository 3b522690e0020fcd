"""Stands between an agent and foretool on stdio and writes down every message, stdlib only.

    python -S -E tap.py LOG [--name NAME] [--ttl-ms MS] [--linger-s S] -- COMMAND...

LOG gets one line of JSON for each message: when, who sent it, and the message without the definitions of tools. NAME
replaces the name that the agent gives of itself, and MS the `ttlMs` of lists.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

Json = dict[str, Any]

CLIENT_INFO = "io.modelcontextprotocol/clientInfo"


def rename(message: Json, name: str) -> None:
    """Replace the name of the client, in a handshake or in the `_meta` of a modern request."""
    params = message.get("params") or {}
    for holder, key in ((params, "clientInfo"), (params.get("_meta") or {}, CLIENT_INFO)):
        if key in holder:
            holder[key] = {**holder[key], "name": name, "title": name}


def shorten_ttl(message: Json, ttl_ms: int) -> None:
    """Replace how long a client may cache a list."""
    result = message.get("result")
    if isinstance(result, dict) and "ttlMs" in result:
        result["ttlMs"] = ttl_ms


def summary(message: Json) -> Json:
    """The message as the log keeps it: of a list of tools only the names."""
    result = message.get("result")
    if isinstance(result, dict) and isinstance(result.get("tools"), list):
        return {**message, "result": {**result, "tools": [tool.get("name") for tool in result["tools"]]}}
    return message


def relay(source: IO[bytes], target: IO[bytes], note: Callable[[Json], None], change: Callable[[Json], None]) -> None:
    """Pass lines on until the source ends; each is changed, and then noted."""
    for line in source:
        try:
            message = json.loads(line)
        except ValueError:
            continue
        change(message)
        note(message)
        try:
            target.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            target.flush()
        except OSError:
            return


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command between the two taps."""
    parser = argparse.ArgumentParser(prog="tap.py", description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--name", default="", help="the name the client gets")
    parser.add_argument("--ttl-ms", type=int, default=-1, help="replaces ttlMs in lists")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args(argv)
    child = subprocess.Popen(arguments.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    log = arguments.log.open("a", encoding="utf-8")
    lock = threading.Lock()

    def note(sender: str) -> Callable[[Json], None]:
        def write(message: Json) -> None:
            with lock:
                log.write(json.dumps({"at": time.time(), "from": sender, "message": summary(message)}) + "\n")
                log.flush()

        return write

    def change_request(message: Json) -> None:
        if arguments.name:
            rename(message, arguments.name)

    def change_reply(message: Json) -> None:
        if arguments.ttl_ms >= 0:
            shorten_ttl(message, arguments.ttl_ms)

    back = threading.Thread(
        target=relay, args=(child.stdout, sys.stdout.buffer, note("foretool"), change_reply), daemon=True
    )
    back.start()
    relay(sys.stdin.buffer, child.stdin, note("agent"), change_request)
    child.stdin.close()
    child.wait()


if __name__ == "__main__":
    main()
