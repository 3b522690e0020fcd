"""Runs coding agents with the registration that `foretool init` wrote: `python -m bench.agents.registered`.

Each agent first has an MCP server of its own in its own config file, in an empty home folder. `foretool init --yes`
takes it over, and the agent then runs as it is, in the default install and under the default policy. Its model is the
stub of `bench.agents`. The table says whether the agent then saw our tools, discovered, called the tool, and put the
text of the prompt hook before the model in its first request (Codex runs a hook only once its user trusts it).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import processes
from bench.agents.__main__ import TOOLS, base_environment, find, print_rows, version_of
from bench.agents.model import DISCOVER, FOUND, Model, serve_stub
from bench.agents.programs import PROGRAMS, Place, Start
from bench.options import add_foretool, make_parser, split_names
from bench.reports import Row
from foretool.server.hints.texts import HEAD, LISTED

RUN_S = 300.0
OWN_FILES = {"claude": ".claude.json", "copilot": ".copilot/mcp-config.json"}
"""Where these two keep servers; `programs` gives them a file in their command line instead."""
OPTIONS = {"claude": ("--mcp-config", 3), "copilot": ("--additional-mcp-config", 2)}
"""The first word that names that file, and how many words belong to it."""
COLUMNS = ("agent", "version", "registered", "sees", "discovers", "calls", "hook")


def run(name: str, program: Path, command: Sequence[str]) -> Row:
    """Register foretool with one agent by `init`, and have it converse."""
    model = Model()
    with tempfile.TemporaryDirectory(prefix="bench-init-", ignore_cleanup_errors=True) as at, serve_stub(model) as url:
        home = Path(at) / "home"
        home.mkdir()
        start = write_agent(name, home, url, server_command(Path(at)))
        # The limit of the hook serves people who wait; a busy machine must not end it here.
        env = {**base_environment(program, home), **start.env, "FORETOOL_HINT_MS": "1800"}
        set_up = subprocess.run(
            [*command, "init", "--yes", "--hook", "--json"], env=env, cwd=home, capture_output=True, check=True
        )
        subprocess.run(
            start.words(program), env=env, cwd=home, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=RUN_S, check=False,
        )  # fmt: skip
    turns = [turn.request for turn in model.turns]
    results = [text for request in turns for text in request.results]
    return {
        "agent": name,
        "version": version_of(program),
        "registered": len(json.loads(set_up.stdout)["changes"]) >= 2,
        "sees": bool(turns) and any(each.endswith(DISCOVER) for each in turns[0].tools),
        "discovers": any(FOUND in text for text in results),
        "calls": any("by its own name" in text for text in results),
        "hook": bool(turns) and has_hint(turns[0].said),
    }


def server_command(folder: Path) -> list[str]:
    """The command of a stand-in server with two tools."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    tools = [{"name": tool, "description": said, "inputSchema": schema} for tool, said in TOOLS["disk"].items()]
    server = processes.serve_tools(folder, {"disk": tools})["disk"]
    return [server["command"], *server["args"]]


def write_agent(name: str, home: Path, url: str, server: Sequence[str]) -> Start:
    """Write the agent's own files, with the server as `disk`."""
    start = PROGRAMS[name](Place(home, url, server))
    arguments = list(start.arguments)
    if name in OWN_FILES:
        own = home / OWN_FILES[name]
        own.parent.mkdir(exist_ok=True)
        (home / "servers.json").rename(own)
        word, count = OPTIONS[name]
        at = arguments.index(word)
        del arguments[at : at + count]
    if name == "claude":
        (home / ".claude").mkdir(exist_ok=True)  # as it is wherever Claude Code has run
    for file in [each for each in home.rglob("*") if each.is_file()]:
        text = file.read_text("utf-8")
        file.write_text(text.replace('"foretool"', '"disk"').replace("mcp_servers.foretool", "mcp_servers.disk"))
    return Start(arguments, start.env, start.through)


def has_hint(said: str) -> bool:
    """Whether the text of the prompt hook is among what a request says."""
    return HEAD.split(".")[0] in said or LISTED in said


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and run each agent."""
    options = make_parser("bench.agents.registered", __doc__)
    options.add_argument("--programs", type=Path, help="the folder of the programs, node_modules/.bin; default: PATH")
    options.add_argument("--agents", default="claude,codex,gemini,opencode,copilot,qwen", help="default %(default)s")
    add_foretool(options)
    arguments = options.parse_args(argv)
    names = split_names(options, "--agents", arguments.agents, PROGRAMS)
    command, rows = processes.installed(arguments.foretool), []
    for name, program in find(names, arguments.programs).items():
        if program is None:
            sys.stderr.write(f"{name}: not found\n")
            continue
        try:
            rows.append(run(name, program, command))
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            sys.stderr.write(f"{name}: {error}\n")
    print_rows(rows, COLUMNS)


if __name__ == "__main__":
    main()
