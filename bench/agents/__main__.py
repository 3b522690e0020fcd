"""Shows what coding agents do with foretool's lists, offline: `python -m bench.agents --programs node_modules/.bin`.

It installs nothing. It runs those of these programs that it finds: claude, codex, gemini, opencode, copilot, qwen,
cline. Each runs in an empty home folder and talks to a stub of its model's API on loopback, which answers with a script
of tool calls. A tap between the agent and foretool writes down every message and takes the agent's name away, so that
foretool can treat each only as it behaves.

Each agent has four conversations: under `growing`, under `frozen` (with lists that may be cached for one second), and
two under `auto` on one storage file. The table says:

  again     how soon it lists again when told that its list has changed
  in time   the request to the model that first has the found tool (next: the one after the search); `announced` if the
            agent only names it there
  unlisted  whether it sends calls of a name that it was not given
  model     what of an answer it puts before the model; `-` where the answer has no structure beside its text
  ttl       whether it lists again by itself once the time to cache a list is over (`-`: its era has none)
  tokens    of our definitions in its first request (characters / 4)
  auto      the policy of its first session under `auto`, and of its second
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import processes
from bench.agents.dialects import Json, Request
from bench.agents.model import DISCOVER, FOUND, Model, serve_stub
from bench.agents.programs import PROGRAMS, Place
from bench.options import add_foretool, add_json, make_parser, split_names
from foretool.retrieval.tokens import estimate
from foretool.server.config.settings import FROM_FILE
from foretool.storage.opening import open_store

RUN_S = 150.0
ATTEMPTS = 3
"""Some agents go on without a server that starts too slowly on a busy machine."""
TTL_MS, THINK_S = 1000, 3.0
TAP = str(Path(__file__).with_name("tap.py"))
TOOLS = {
    "disk": {"zip_folder": "Compress a folder into an archive", "list_folder": "List what is in a folder"},
    "mail": {"send_letter": "Send a letter to somebody", "read_letter": "Read a letter"},
}
COLUMNS = ("agent", "version", "era", "again", "in time", "unlisted", "model", "ttl", "tokens", "auto")


@dataclass(frozen=True, slots=True)
class Message:
    """A message that passed the tap."""

    at: float
    sender: str
    body: Json

    @property
    def method(self) -> str:
        method: str = self.body.get("method", "")
        return method


@dataclass(frozen=True, slots=True)
class Talk:
    """One conversation: what reached the model, and what passed between the agent and foretool."""

    requests: Sequence[Request]
    messages: Sequence[Message]

    def sent(self, method: str, sender: str = "agent") -> list[Message]:
        """The messages of one method."""
        return [each for each in self.messages if each.sender == sender and each.method == method]

    def calls(self, name: str) -> int:
        """How many calls of a tool the agent sent."""
        return sum(each.body["params"].get("name") == name for each in self.sent("tools/call"))

    def discovery(self) -> Json:
        """The result of the first `discover_tools`, {} if there is none."""
        asked = next((each for each in self.sent("tools/call") if each.body["params"].get("name") == DISCOVER), None)
        replies = [each.body for each in self.messages if each.sender == "foretool" and not each.method]
        return next((each.get("result", {}) for each in replies if asked and each.get("id") == asked.body["id"]), {})


def write_config(folder: Path, policy: str) -> Path:
    """Write foretool's config over two upstreams of two tools each, none of which is listed at first."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    catalogs = {
        name: [{"name": tool, "description": said, "inputSchema": schema} for tool, said in tools.items()]
        for name, tools in TOOLS.items()
    }
    servers = processes.serve_tools(folder, catalogs)
    return processes.write_config(folder, servers, policy=policy, list_whole=False, list_fill=False)


def converse(
    program: Path, command: Sequence[str], folder: Path, policy: str, *, ttl_ms: int = -1, think_s: float = 0.0
) -> Talk:
    """Run an agent once, with foretool's storage in `folder`. An agent that does not get our tools is run again."""
    for _ in range(ATTEMPTS):
        talk = _converse(program, command, folder, policy, ttl_ms, think_s)
        if talk.requests:
            return talk
    raise RuntimeError(f"{program.name} never had our tools in a request")


def _converse(program: Path, command: Sequence[str], folder: Path, policy: str, ttl_ms: int, think_s: float) -> Talk:
    model = Model(think_s)
    with tempfile.TemporaryDirectory(prefix="bench-agent-", ignore_cleanup_errors=True) as at, serve_stub(model) as url:
        home, log = Path(at) / "home", Path(at) / "tap.jsonl"
        home.mkdir()
        tapped = [sys.executable, "-S", "-E", TAP, str(log), "--name", "somebody", "--ttl-ms", str(ttl_ms), "--"]
        # Agents hand on few variables, and the config sets limits.
        serving = [
            "/usr/bin/env",
            f"{FROM_FILE}=file",
            *command,
            "serve",
            "--config",
            str(write_config(folder, policy)),
        ]
        start = PROGRAMS[program.name](Place(home, url, [*tapped, *serving]))
        env = {**base_environment(program, home), **start.env}
        subprocess.run(
            start.words(program), env=env, cwd=home, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=RUN_S, check=False,
        )  # fmt: skip
        lines = log.read_text("utf-8").splitlines() if log.exists() else []
        read = [json.loads(line) for line in lines]
    return Talk(
        [turn.request for turn in model.turns], [Message(each["at"], each["from"], each["message"]) for each in read]
    )


def base_environment(program: Path, home: Path) -> dict[str, str]:
    """The variables of every agent. Nothing outside loopback can be reached through the proxy that they name."""
    nowhere = "http://127.0.0.1:9"
    proxies = {"HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "NO_PROXY": "127.0.0.1,localhost"}
    path = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    return {"PATH": path, "HOME": str(home), "TERM": "xterm-256color", "LANG": "C.UTF-8", **proxies}


# -- what a conversation shows


def era_of(talk: Talk) -> str:
    """The era that the agent's requests for tools belong to."""
    listed = talk.sent("tools/list")
    return (
        "modern" if listed and "_meta" in (listed[0].body.get("params") or {}) and _has_version(listed[0]) else "legacy"
    )


def _has_version(message: Message) -> bool:
    return any(key.endswith("/protocolVersion") for key in message.body["params"]["_meta"])


def relist_ms(talk: Talk) -> float | None:
    """The time from the first announcement to the next request for tools; None if there was no such request."""
    told = talk.sent("notifications/tools/list_changed", "foretool")
    after = [each.at - told[0].at for each in talk.sent("tools/list") if told and each.at > told[0].at]
    return min(after) * 1000 if after else None


def in_time(talk: Talk) -> str:
    """Which request after the search first has the found tool."""
    for place, request in enumerate(talk.requests[1:]):
        when = "next" if not place else f"next + {place}"
        if any(name.endswith(FOUND) for name in request.tools):
            return when
        if re.search(rf"\w{FOUND}", request.said):
            return f"{when}, announced"
    return "never"


def before_model(talk: Talk) -> str:
    """Which parts of the result of `discover_tools` the agent put before the model."""
    result = talk.discovery()
    if "structuredContent" not in result:
        return "-"
    shown = _bare("\n".join(talk.requests[1].results)) if len(talk.requests) > 1 else ""
    texts = [each["text"] for each in result.get("content", ()) if each.get("type") == "text"]
    has_text = bool(texts) and _bare(texts[0])[:60] in shown
    has_structure = _bare(json.dumps(result.get("structuredContent")))[:60] in shown
    return {(True, True): "both", (True, False): "text", (False, True): "structure"}.get((has_text, has_structure), "?")


def _bare(text: str) -> str:
    """A text without what JSON within JSON adds to it."""
    return re.sub(r'\\+n|[\\"\s]', "", text)


def tokens_of(request: Request, prefix: str) -> int:
    """The tokens of our definitions in a request."""
    ours = [tool for name, tool in request.tools.items() if name.startswith(prefix) or name in _own_names(request)]
    return sum(estimate(json.dumps(tool, separators=(",", ":"))) for tool in ours)


def _own_names(request: Request) -> set[str]:
    return {name for name in request.tools if name.endswith((DISCOVER, "call_tool", "call_tool_write"))}


def measure(program: Path, command: Sequence[str]) -> Json:
    """The row of one agent."""
    with tempfile.TemporaryDirectory(prefix="bench-agents-") as one, tempfile.TemporaryDirectory() as two:
        growing = converse(program, command, Path(one), "growing")
        frozen = converse(program, command, Path(two), "frozen", ttl_ms=TTL_MS, think_s=THINK_S)
    with tempfile.TemporaryDirectory(prefix="bench-agents-") as three:
        for _ in range(2):
            converse(program, command, Path(three), "auto")
        policies = policies_of(Path(three) / "foretool.sqlite3")
    era, again = era_of(growing), relist_ms(growing)
    return {
        "agent": program.name,
        "version": version_of(program),
        "era": era,
        "again": "no" if again is None else f"{again:.0f} ms",
        "in time": in_time(growing),
        "unlisted": "sent" if frozen.calls(FOUND) else "refused",
        "model": before_model(growing),
        "ttl": "-" if era == "legacy" else "obeyed" if len(frozen.sent("tools/list")) > 1 else "ignored",
        "tokens": tokens_of(growing.requests[0], "\0"),
        "auto": ", ".join(policies),
    }


def policies_of(path: Path) -> list[str]:
    """How the list of each session with calls ended: `frozen`, `growing`, or `tried` where a frozen one grew once."""
    with open_store(path) as store:
        sessions = store.sessions.recent()[::-1]
        lists = [store.sessions.exposures(each.key) for each in sessions]
    return [
        "tried" if each[0].policy == "frozen" and any(one.reason == "growth" for one in each) else each[0].policy
        for each in lists
        if each
    ]


def version_of(program: Path) -> str:
    """The version that a program prints."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        env = base_environment(program, Path(home))
        done = subprocess.run(
            [str(program), "--version"], env=env, cwd=home, capture_output=True, text=True, check=False
        )
    found = re.search(r"\d+\.\d+\.\d+", done.stdout)
    return found[0] if found else "?"


def find(names: Sequence[str], folder: Path | None) -> dict[str, Path | None]:
    """Where each program lies: in the folder, or on PATH without one."""
    path = None if folder is None else str(folder.absolute())
    return {name: Path(found) if (found := shutil.which(name, path=path)) else None for name in names}


def print_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> None:
    """Print the rows under their columns."""
    widths = {column: max([len(column), *(len(str(row[column])) for row in rows)]) for column in columns}
    for row in ({column: column for column in columns}, *rows):
        print("  ".join(f"{row[column]!s:<{width}}" for column, width in widths.items()).rstrip())


def parser() -> ArgumentParser:
    """The command line."""
    parser = make_parser("bench.agents", __doc__)
    parser.add_argument("--programs", type=Path, help="the folder of the programs, node_modules/.bin; default: PATH")
    parser.add_argument("--agents", default=",".join(PROGRAMS), help="default %(default)s")
    add_json(parser)
    add_foretool(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and converse with each agent."""
    options = parser()
    arguments = options.parse_args(argv)
    names = split_names(options, "--agents", arguments.agents, PROGRAMS)
    command = processes.installed(arguments.foretool)
    rows = []
    for name, program in find(names, arguments.programs).items():
        if program is None:
            sys.stderr.write(f"{name}: not found\n")
            continue
        try:
            rows.append(measure(program, command))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            sys.stderr.write(f"{name}: {error}\n")
            continue
        if arguments.json:
            print(json.dumps(rows[-1]), flush=True)
    if rows and not arguments.json:
        print_rows(rows)


if __name__ == "__main__":
    main()
