"""An MCP server on stdio that tells what it was given: folder, environment, open files; for tests with real processes.

python telling_upstream.py [--need NAME]...
"""

import argparse
import json
import os
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--need", action="append", default=[], help="exit unless this variable is set")
    options, _ = parser.parse_known_args()
    for name in options.need:
        if name not in os.environ:
            sys.exit(f"Error: {name} is not set")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}) + "\n")
            sys.stdout.flush()


def answer(message: dict) -> dict:
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "telling", "version": "1"}
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{"name": "tell", "inputSchema": {"type": "object"}}]}
    said = {"cwd": str(Path.cwd()), "env": dict(os.environ), "files": open_files(), "pid": os.getpid()}
    return {"content": [{"type": "text", "text": json.dumps(said)}]}


def open_files() -> list[str]:
    """What the numbers from 3 on lead to, apart from the listing itself."""
    found = []
    for number in range(3, 256):
        try:
            os.fstat(number)
            found.append(f"{number}: {Path(f'/proc/self/fd/{number}').readlink()}")
        except OSError:
            continue
    return found


if __name__ == "__main__":
    main()
