"""Writes down what each agent does with the registration of `foretool init`: `python -m bench.agents.transcripts`.

The agent has one MCP server of its own in its config file, in an empty home folder. The transcript has the agent's
version, what `foretool init` prints at 80 columns, and the conversation: the tools that the model is given, what it
calls and what it reads. The model is the stub of `bench.agents`, so what it calls is scripted; the agent and foretool
are whole programs. `docs/clients/` has the transcripts (`--into docs/clients/transcripts`). `--set-up` needs no agent:
of the transcripts there it writes again what `foretool init` prints, and keeps the conversations.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench import processes
from bench.agents.__main__ import base_environment, find
from bench.agents.dialects import Use
from bench.agents.model import Model, Turn, serve_stub
from bench.agents.programs import PROGRAMS, PROMPT
from bench.agents.registered import RUN_S, has_hint, server_command, write_agent
from bench.options import add_foretool, make_parser, split_names

CLIENTS: Final = {
    "claude": "claude-code",
    "codex": "codex",
    "gemini": "gemini",
    "opencode": "opencode",
    "copilot": "copilot",
    "qwen": "qwen",
    "cline": "cline-cli",
    "cn": "continue",
    "code-server": "vscode",
}
"""What `foretool init --client` calls each program."""
TYPED: Final = {
    "claude": "claude -p",
    "codex": "codex exec",
    "gemini": "gemini -p",
    "opencode": "opencode run",
    "copilot": "copilot -p",
    "qwen": "qwen -p",
    "cline": "cline",
    "cn": "cn -p",
    "code-server": "(in the chat of the window)",
}
OURS: Final = re.compile(r"discover_tools|call_tool(?:_write)?|disk_?_?(?:zip_folder|list_folder)|disk__")
SET_UP: Final = ("init", "--yes", "--hook", "--client")
WIDTH: Final = 80
MOST_LINE: Final = 130
"""Characters of a line that are kept."""
LINES: Final = 6
"""Lines of a result that are kept."""
INSTALLED: Final = "/usr/local/bin/foretool"


def write_transcript(name: str, program: Path, command: Sequence[str]) -> str:
    """Register foretool with one agent by `init`, have it converse, and return what was seen."""
    model = Model(bridged="disk__list_folder")
    with tempfile.TemporaryDirectory(prefix="bench-init-", ignore_cleanup_errors=True) as at, serve_stub(model) as url:
        home = Path(at) / "home"
        home.mkdir()
        server = server_command(Path(at))
        start = write_agent(name, home, url, server)
        env = {**base_environment(program, home), **start.env, "FORETOOL_HINT_MS": "1800", "COLUMNS": str(WIDTH)}
        version = _run([str(program), "--version"], env, home).split("\n", 1)[0]
        words = [*SET_UP, CLIENTS[name]]
        set_up = _run([*command, *words], env, home)
        _run(start.words(program), env, home)
        said = "\n".join(
            [
                f"$ {name} --version\n{version}\n",
                f"$ foretool {shlex.join(words)}\n{set_up}\n",
                f"$ {TYPED[name]} {shlex.quote(PROMPT)}",
                *_describe(model.turns),
            ]
        )
        known = {command[0]: INSTALLED, str(home): "~", shlex.join(server): "disk-server", at: "/srv", url: "MODEL"}
        for found, shown in known.items():
            said = said.replace(found, shown)
        return "\n".join(_cut(line.rstrip()) for line in said.splitlines()) + "\n"


def set_up_again(name: str, transcript: str, command: Sequence[str]) -> str:
    """Return a transcript with what `init` prints today."""
    with tempfile.TemporaryDirectory(prefix="bench-init-", ignore_cleanup_errors=True) as at:
        home = Path(at) / "home"
        home.mkdir()
        server = server_command(Path(at))
        start = write_agent(name, home, "http://127.0.0.1:9", server)
        env = {**base_environment(Path(command[0]), home), **start.env, "COLUMNS": str(WIDTH)}
        words = [*SET_UP, CLIENTS[name]]
        said = _run([*command, *words], env, home)
        for found, shown in {
            command[0]: INSTALLED,
            str(home): "~",
            shlex.join(server): "disk-server",
            at: "/srv",
        }.items():
            said = said.replace(found, shown)
    before, typed, rest = transcript.partition(f"$ foretool {shlex.join(words)}\n")
    _, next_typed, talk = rest.partition("\n\n$ ")
    lines = "\n".join(_cut(line.rstrip()) for line in said.splitlines())
    return f"{before}{typed}{lines}{next_typed}{talk}"


def _cut(line: str) -> str:
    return line if len(line) <= MOST_LINE else f"{line[: MOST_LINE - 3]}..."


def _run(words: Sequence[str], env: dict[str, str], home: Path) -> str:
    done = subprocess.run(
        words, env=env, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_S, check=False
    )
    return done.stdout.strip()


def _describe(turns: Sequence[Turn]) -> Iterator[str]:
    """Yield the conversation as lines: what the model is given, calls and reads."""
    seen = 0
    for number, turn in enumerate(turns):
        tools = [each for each in turn.request.tools if OURS.search(each)]
        if number == 0:
            others = len(turn.request.tools) - len(tools)
            yield f"  given    {', '.join(tools)}, and {others} tools of its own"
            if has_hint(turn.request.said):
                yield "  given    the text of foretool's prompt hook"
        for result in turn.request.results[seen:]:
            lines = [line for line in result.splitlines() if line.strip()]
            more = [f"... {len(lines) - LINES} more lines"] if len(lines) > LINES else []
            yield from (f"  {'reads' if not at else '':<8} {line}" for at, line in enumerate([*lines[:LINES], *more]))
        seen = len(turn.request.results)
        if isinstance(turn.answer, Use):
            yield f"  calls    {turn.answer.name} {json.dumps(turn.answer.arguments)}"
        else:
            yield f"  says     {turn.answer}"


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and write a file for each agent."""
    options = make_parser("bench.agents.transcripts", __doc__)
    options.add_argument("--programs", type=Path, help="the folder of the programs, node_modules/.bin; default: PATH")
    options.add_argument("--agents", default=",".join(CLIENTS), help="default %(default)s")
    options.add_argument("--into", type=Path, help="the folder of the transcripts; default: print them")
    options.add_argument("--set-up", action="store_true", help="write what init prints again, in the files of --into")
    add_foretool(options)
    arguments = options.parse_args(argv)
    names = split_names(options, "--agents", arguments.agents, PROGRAMS)
    command = processes.installed(arguments.foretool)
    for name in names if arguments.set_up and arguments.into else ():
        file = arguments.into / f"{CLIENTS[name]}.txt"
        file.write_text(set_up_again(name, file.read_text("utf-8"), command), "utf-8")
    if arguments.set_up:
        return
    for name, program in find(names, arguments.programs).items():
        if program is None:
            sys.stderr.write(f"{name}: not found\n")
            continue
        text = write_transcript(name, program, command)
        if arguments.into is None:
            sys.stdout.write(text)
        else:
            (arguments.into / f"{CLIENTS[name]}.txt").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
