"""An MCP server on stdio that tells what it was given: folder, environment, open files; for tests with real processes.

python telling_upstream.py [--need NAME]... [--leave KIND --pids FILE]
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--need", action="append", default=[], help="exit unless this variable is set")
    parser.add_argument(
        "--leave", choices=("session", "daemon", "stubborn", "nameless", "hydra"), help="start such a process"
    )
    parser.add_argument("--pids", type=Path, help="append the id of that process to this file")
    options = parser.parse_args()
    if options.leave:
        leave(options.leave, options.pids)
    for name in options.need:
        if name not in os.environ:
            sys.exit(f"Error: {name} is not set")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}) + "\n")
            sys.stdout.flush()


def leave(kind: str, pids: Path) -> None:
    """Start a process outside our group that tries to stay."""
    ignore = "signal.signal(signal.SIGTERM, signal.SIG_IGN);" if kind == "stubborn" else ""
    code = (
        f"import os, signal, time; {ignore} out = open({str(pids)!r}, 'a');"
        " out.write(f'{os.getpid()}\\n'); out.flush(); time.sleep(1000)"
    )
    if kind == "hydra":  # it forks all the time, and each child has a session and an id of its own
        code = (
            "import os, signal, time\n"
            f"signal.signal(signal.SIGTERM, signal.SIG_IGN); open({str(pids)!r}, 'a').write('0\\n')\n"
            "end = time.monotonic() + 60\n"
            "while time.monotonic() < end:\n"
            "    if os.fork(): os._exit(0)\n"
            "    os.setsid(); time.sleep(0.002)"
        )
    env = {} if kind == "nameless" else None
    start = [sys.executable, "-S", "-c", code]
    before = count_lines(pids)
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if kind in ("session", "nameless"):
        subprocess.Popen(start, start_new_session=True, env=env, **quiet)
    elif os.fork() == 0:
        # The child ends at once, so that its child belongs to the system.
        subprocess.Popen(start, start_new_session=True, cwd="/", **quiet)
        os._exit(0)
    else:
        os.wait()
    while count_lines(pids) == before:
        time.sleep(0.01)


def count_lines(path: Path) -> int:
    return path.read_text().count("\n") if path.exists() else 0


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
