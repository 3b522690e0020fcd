"""Who decides: a model in a GGUF file on this machine, or a model behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from zlib import crc32

from msgspec.structs import replace

from bench.agents.decisions import Decision, Turn, for_model, grammar, read_decision, system_text, write_prompt
from bench.clients.messages import Json

URL: Final = "AGENT_URL"
KEY: Final = "AGENT_KEY"
"""The variables of the endpoint (the part of its address before `/chat/completions`) and of its key."""
LONGEST: Final = 400
"""Tokens of a decision."""
BRIEF: Final = 40
PATIENCE_S: Final = 900.0
SCRIPT: Final = Path(__file__).with_name("gguf.mjs")


class Driver(Protocol):
    """Decides what to do next."""

    name: str
    seed: int
    """Of what the first decision draws at a temperature over 0 (`seed_of`); each later one has a seed of its own."""

    def decide(
        self, instructions: str, tools: Sequence[Json], task: str, turns: Sequence[Turn] = (), *, is_brief: bool = False
    ) -> Decision:
        """Return the next call, or the answer. `is_brief`: nothing is needed behind the name of the tool."""
        ...


class Gguf:
    """A model in a file, through node-llama-cpp."""

    def __init__(
        self, file: Path, modules: Path, threads: int = 1, context: int = 8192, kept: int = 1, temperature: float = 0.0
    ) -> None:
        """`modules`: the `node_modules` that hold node-llama-cpp. `kept`: how many prompts stay read."""
        self.name = file.stem
        self.seed = 0
        self._temperature = temperature
        numbers = [str(each) for each in (threads, context, kept)]
        command = ["node", str(SCRIPT), str(modules.resolve()), str(file.resolve()), *numbers]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def decide(
        self, instructions: str, tools: Sequence[Json], task: str, turns: Sequence[Turn] = (), *, is_brief: bool = False
    ) -> Decision:
        names = [tool["name"] for tool in tools]
        asked = {
            "prompt": write_prompt(instructions, tools, task, turns),
            "grammar": grammar(names, is_brief=is_brief),
            "most": BRIEF if is_brief else LONGEST,
            "temperature": self._temperature,
            "seed": self.seed + len(turns),
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        started = time.perf_counter()
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the model ended with status {self._process.wait()}")
        said = json.loads(line)
        return replace(
            read_decision(said["text"], is_brief=is_brief),
            read=said["read"], cached=said["cached"], written=said["written"],
            seconds=round(time.perf_counter() - started, 2),
        )  # fmt: skip

    def close(self) -> None:
        """End the model's process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Endpoint:
    """A model behind an OpenAI-compatible endpoint, asked by its own tool calls."""

    def __init__(self, model: str, url: str = "", key: str = "", temperature: float = 0.0) -> None:
        self.name = model
        self.seed = 0
        self._temperature = temperature
        self._url = (url or os.environ.get(URL, "")).rstrip("/") + "/chat/completions"
        self._key = key or os.environ.get(KEY, "")

    def decide(
        self, instructions: str, tools: Sequence[Json], task: str, turns: Sequence[Turn] = (), *, is_brief: bool = False
    ) -> Decision:
        body: Json = {
            "model": self.name,
            "messages": _messages(instructions, task, turns),
            "tools": [{"type": "function", "function": for_model(tool)} for tool in tools],
            "temperature": self._temperature,
        }
        if self._temperature:
            body["seed"] = self.seed + len(turns)
        started = time.perf_counter()
        said = self._post(body)
        message, usage = said["choices"][0]["message"], said.get("usage") or {}
        calls = message.get("tool_calls") or []
        counts: dict[str, Any] = {
            "read": usage.get("prompt_tokens", 0),
            "cached": (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            "written": usage.get("completion_tokens", 0),
            "seconds": round(time.perf_counter() - started, 2),
        }
        if not calls:
            text = message.get("content") or ""
            return Decision(answer=text, text=text, **counts)
        function = calls[0]["function"]
        try:
            arguments = json.loads(function.get("arguments") or "{}")
        except ValueError:
            arguments = {}
        return Decision(function["name"], arguments, text=json.dumps(function), **counts)

    def _post(self, body: Json) -> Json:
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._key}"}
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as reply:
            said: Json = json.load(reply)
        return said


def seed_of(task: str, repeat: int) -> int:
    """The seed of a task: with the same one for all tasks of a repeat, all would begin alike."""
    return crc32(f"{repeat} {task}".encode()) >> 1


def add_model(parser: argparse.ArgumentParser) -> None:
    """Let the command line say which model decides."""
    parser.add_argument("--gguf", type=Path, metavar="FILE", help="an instruct model in ChatML")
    parser.add_argument("--threads", type=int, default=2, help="of the model; default %(default)s")
    parser.add_argument("--context", type=int, default=16_384, help="tokens of the model; default %(default)s")
    parser.add_argument("--kept", type=int, default=1, help="prompts that the model keeps read; default %(default)s")
    parser.add_argument("--model", default="", metavar="NAME", help=f"a model of the endpoint at {URL}")
    parser.add_argument(
        "--temperature", type=float, default=0.0, help="each task and repeat has a seed of its own; default %(default)s"
    )


def open_driver(parser: argparse.ArgumentParser, arguments: argparse.Namespace, modules: Path | None) -> Driver:
    """Open the model that the command line names; `modules` as for `Gguf`. Ends the program where it names none."""
    if bool(arguments.gguf) == bool(arguments.model):
        parser.error("name a model: one of --gguf and --model")
    if arguments.model:
        return Endpoint(arguments.model, temperature=arguments.temperature)
    if modules is None:
        parser.error("--gguf needs the folder that holds node-llama-cpp: --modules")
    return Gguf(
        arguments.gguf, modules, arguments.threads, arguments.context, arguments.kept, arguments.temperature
    )  # fmt: skip


def _messages(instructions: str, task: str, turns: Sequence[Turn]) -> list[Json]:
    said: list[Json] = [
        {"role": "system", "content": system_text(instructions)}, {"role": "user", "content": task}
    ]  # fmt: skip
    for place, turn in enumerate(turns):
        if not turn.decision.tool:
            said += [
                {"role": "assistant", "content": turn.decision.answer}, {"role": "user", "content": turn.result}
            ]  # fmt: skip
            continue
        id = f"call_{place}"
        function = {"name": turn.decision.tool, "arguments": json.dumps(turn.decision.arguments)}
        said += [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": id, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": id, "content": turn.result},
        ]
    return said
