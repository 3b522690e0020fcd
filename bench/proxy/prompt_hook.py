"""Measures how long a prompt waits for `foretool hint`, the command behind a client's prompt hook.

    python -m bench.proxy.prompt_hook --catalogs FOLDER [--tools 300,5000] [--encoder none] [--json]

FOLDER holds the `tools/list` of servers, one JSON file each (`server`, `tools`); servers repeat until there are enough
tools. Each run starts the command as a client does, over a store that knows the tools: first with a running proxy that
it asks (`proxy`) and that has embedded all tools, then without one (`words`). The output has the wall time and the
processor time of the process, the start of Python included. The command's own deadline is lifted, so that slow runs
show. With `--encoder none` nobody waits until thousands of tools are embedded.

With `--claude PROGRAM` (as in `bench.proxy.claude_code`) the hook is put into the settings of a real Claude Code,
offline, which is given two prompts. The output says whether the hook's words reached the model, and what foretool has
on record.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench import processes
from bench.datasets import read_catalogs
from bench.options import add_json, make_parser
from bench.proxy import claude_code
from bench.reports import Row, print_row, times_row
from foretool.server.commands import hint as installing
from foretool.server.config import loader as configs
from foretool.server.config.servers import fingerprint
from foretool.server.hints.texts import HEAD
from foretool.server.setup import changes, client_hooks
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId, UpstreamRecord
from foretool.storage.steps import finish

IDLE_S, IDLE_CPU_S = 3.0, 0.3
"""A proxy is idle that used less processor time than that in so many seconds."""
PROMPT = "find the newest open issue in the repository, and send its author a summary of the discussion by email"


def servers(folder: Path, count: int) -> dict[str, list[dict[str, Any]]]:
    """`count` tools by server; servers repeat under other names until there are enough."""
    known = [(server, tools) for server, tools in read_catalogs(folder) if tools]
    found: dict[str, list[dict[str, Any]]] = {}
    left, turn = count, 0
    while left:
        for name, tools in known:
            unique = list({tool["name"]: tool for tool in tools}.values())[:left]
            if unique:
                found[f"{name}-{turn}"] = unique
                left -= len(unique)
        turn += 1
    return found


def prepare(folder: Path, tools: dict[str, list[dict[str, Any]]], encoder: str = "auto") -> Path:
    """Write a config with these servers, and a store that knows their tools."""
    path = folder / "mcp.json"
    entries = {name: {"command": name} for name in tools}
    settings = {"storage": "store.sqlite3", "encoder": encoder}
    path.write_text(json.dumps({"mcpServers": entries, "foretool": settings}))
    config = configs.load(path)
    with open_store(config.storage) as store:
        for name, server in config.servers.items():
            record = UpstreamRecord(name, fingerprint(server), "legacy", "", "", "{}", 1.0)
            finish(store.catalog.save_upstream(record, [_tool(name, each) for each in tools[name]]))
    return path


def _tool(server: str, definition: dict[str, Any]) -> Tool:
    data = json.dumps(definition).encode()
    id = ToolId(f"{server[:16]}-{sha256(server.encode()).hexdigest()[:4]}__{definition['name']}")
    return Tool(id, server, definition["name"], data, sha256(data).hexdigest(), 100)


def run_once(config: Path, sockets: str) -> tuple[float, float, bool]:
    """Run the hook; its wall time and processor time in milliseconds, and whether it said something."""
    command = [sys.executable, "-m", "foretool", "hint", "--config", str(config)]
    kept = processes.compiled_environment(config.parent / "bytecode")
    environ = {**kept, "FORETOOL_HINT_MS": "10000", "FORETOOL_SOCKETS": sockets}
    started = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ)
    assert process.stdin and process.stdout
    process.stdin.write(json.dumps({"prompt": PROMPT, "cwd": str(config.parent)}).encode())
    process.stdin.close()
    said = bool(process.stdout.read())
    _, _, usage = os.wait4(process.pid, 0)
    process.stdout.close()
    process.returncode = 0
    return 1e3 * (time.perf_counter() - started), 1e3 * (usage.ru_utime + usage.ru_stime), said


@contextlib.contextmanager
def serving(config: Path, sockets: Path) -> Iterator[int]:
    """A proxy that listens in this folder; its process id."""
    command = [sys.executable, "-m", "foretool", "serve", "--alone", "--config", str(config)]
    environ = {**processes.compiled_environment(config.parent / "bytecode"), "FORETOOL_SOCKETS": str(sockets)}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ,
        cwd=config.parent,
    )  # fmt: skip
    try:
        while not (sockets.is_dir() and list(sockets.iterdir())):
            time.sleep(0.05)
        yield process.pid
    finally:
        assert process.stdin
        process.stdin.close()
        process.wait(30)


def wait_until_idle(pid: int) -> None:
    """Wait until a proxy and its workers have used next to no processor time for a while."""
    used = -1.0
    while (now := processes.cpu_s(pid)) - used > IDLE_CPU_S or processes.children(pid):
        used = now
        time.sleep(IDLE_S)


def measure(config: Path, runs: int) -> Iterator[Row]:
    """A row of `runs` runs that ask a proxy, and one of as many after it has ended, in milliseconds."""
    sockets = config.parent / "run"
    with serving(config, sockets) as pid:
        run_once(config, str(sockets))  # the first one has the proxy index its tools and embed them
        wait_until_idle(pid)
        yield time_runs("proxy", config, str(sockets), runs)
    yield time_runs("words", config, "off", runs)


def time_runs(asked: str, config: Path, sockets: str, runs: int) -> Row:
    """The row of some runs, after one by which the encoder is open and all modules are compiled."""
    run_once(config, sockets)
    wall, processor, said = zip(*(run_once(config, sockets) for _ in range(runs)), strict=True)
    used = {f"processor_{name}": value for name, value in times_row(processor, (50,), 1).items()}
    return {"asked": asked, **times_row(wall, digits=1), **used, "said": sum(said), "runs": runs}


def results(folder: Path, counts: Sequence[int], runs: int, encoder: str = "auto") -> Iterator[Row]:
    """Two rows for each number of tools."""
    for count in counts:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as kept:
            path = prepare(Path(kept), servers(folder, count), encoder)
            for row in measure(path, runs):
                yield {"tools": count, **row}


class Listener(claude_code.Model):
    """A stub of the model that says one word and calls no tool."""

    def _step(self, step: int, told: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": "done"}]


def run_hook(claude: str) -> dict[str, Any]:
    """Give Claude Code with the hook two prompts; at the first one the tools may not be known yet."""
    prompt, model = "compress a folder into an archive", Listener()
    with (
        tempfile.TemporaryDirectory(prefix="bench-hint-", ignore_cleanup_errors=True) as place,
        claude_code.serve_stub(model) as url,
    ):
        folder = Path(place)
        home = folder / "home"
        path = claude_code.write_config(folder, "frozen")
        typed = f"env FORETOOL_HINT_MS=5000 {installing.hook_command(path)}"
        hook, settings = client_hooks.HOOKS["claude-code"], home / ".claude" / "settings.json"
        if change := client_hooks.change(hook, settings, typed):
            changes.write_changes([change], folder / changes.FOLDER)
        with claude_code.server_entry(processes.installed(None), path, "stdio") as server:
            for _ in range(2):
                claude_code.converse(claude, server, home, url, prompt)
        with open_store(folder / "foretool.sqlite3") as store:
            kept = [each.text for each in store.tasks.prompts()[::-1]]
        reached = [HEAD in json.dumps(request["messages"]) for request in model.requests]
        env = {"PATH": os.environ["PATH"], "HOME": str(home)}
        return {"test": "hint", "client": claude_code.version(claude, env), "reached": reached, "prompts": kept}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print as results come."""
    parser = make_parser("bench.proxy.prompt_hook", __doc__)
    parser.add_argument("--catalogs", type=Path, metavar="FOLDER")
    parser.add_argument("--claude", metavar="PROGRAM")
    parser.add_argument("--tools", default="300,1000,5000", help="default %(default)s")
    parser.add_argument("--runs", type=int, default=30, help="default %(default)s")
    parser.add_argument("--encoder", default="auto", help="setting of the proxy; default %(default)s")
    add_json(parser)
    arguments = parser.parse_args(argv)
    if arguments.claude:
        print(json.dumps(run_hook(str(Path(arguments.claude).absolute()))))
    if not arguments.catalogs:
        return
    counts = [int(each) for each in arguments.tools.split(",")]
    for result in results(arguments.catalogs, counts, arguments.runs, arguments.encoder):
        print_row(result, arguments.json)


if __name__ == "__main__":
    main()
