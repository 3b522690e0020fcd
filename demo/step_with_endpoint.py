"""An agent in one file: foretool chooses the tools of a step, a model at an OpenAI-compatible endpoint uses them.

    ollama serve                     # or llama.cpp, vLLM, LM Studio, or any such service
    make servers
    python demo/step_with_endpoint.py "what time is it in Tokyo" --model qwen3:4b

The endpoint is OPENAI_BASE_URL (http://127.0.0.1:11434/v1), its key OPENAI_API_KEY where it wants one. Each round is a
step of its own (ITR, Algorithm 1): the tools follow from the task and what was called so far. A model that
misses a tool calls discover_tools, and the next step has what it found; with a low `sufficiency` it is wider as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import servers

from foretool import CallFailed, Foretool, Step

URL = "http://127.0.0.1:11434/v1"
ROUNDS = 8

Message = dict[str, Any]


class Agent:
    """A conversation of a model that uses the tools which foretool chooses."""

    def __init__(self, ft: Foretool, http: httpx2.AsyncClient, model: str, budget: int) -> None:
        self.ft = ft
        self.http = http
        self.model = model
        self.budget = budget

    async def run(self, task: str) -> str:
        """The model's answer, after at most `ROUNDS` rounds of calls."""
        said: list[Message] = [{"role": "user", "content": task}]
        step = await self.ft.step(task, budget=self.budget)
        for _ in range(ROUNDS):
            print(f"step: {', '.join(step.tools)} ({step.tokens} tokens, confidence {step.confidence})")
            reply = await self.ask(step, said)
            said.append(reply)
            calls = reply.get("tool_calls") or []
            if not calls:
                return str(reply.get("content") or "")
            rated = 1.0
            for call in calls:
                name, arguments = call["function"]["name"], _arguments(call)
                text = await self.call(step, name, arguments)
                said.append({"role": "tool", "tool_call_id": call["id"], "content": text})
                if name == "discover_tools" and arguments is not None:
                    rated = min(rated, float(arguments.get("sufficiency", 1.0)))
            step = await self.ft.step(task, budget=self.budget)
            step = await step.widen(rated)
        return f"no answer after {ROUNDS} rounds"

    async def ask(self, step: Step, said: list[Message]) -> Message:
        """Ask for one completion, with the step's prompt and tools."""
        body = {
            "model": self.model,
            "messages": [{"role": "system", "content": step.system_prompt}, *said],
            "tools": step.tools.openai,
        }
        response = await self.http.post("chat/completions", json=body)
        response.raise_for_status()
        message: Message = response.json()["choices"][0]["message"]
        return message

    async def call(self, step: Step, name: str, arguments: dict[str, Any] | None) -> str:
        """Run a call of the model; the text that the model gets."""
        if arguments is None:
            return "the arguments were not a JSON object; call again"
        print(f"  {name}({json.dumps(arguments, ensure_ascii=False)})")
        try:
            result = await step.call(name, arguments)
        except CallFailed as error:
            return str(error)
        return f"failed: {result.text}" if result.is_error else result.text


def _arguments(call: Message) -> dict[str, Any] | None:
    try:
        found = json.loads(call["function"].get("arguments") or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


async def answer(config: Path, task: str, url: str, key: str, model: str, budget: int) -> str:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(base_url=url.rstrip("/") + "/", headers=headers, timeout=300) as http,
        Foretool(config, name="step with endpoint") as ft,
    ):
        return await Agent(ft, http, model, budget).run(task)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", default="what time is it in Tokyo")
    parser.add_argument("--model", required=True, help="as the endpoint calls it")
    parser.add_argument("--config", type=Path, default=servers.CONFIG, help="default: that of the demo")
    parser.add_argument("--budget", type=int, default=2000, help="tokens of prompt and tools; default %(default)s")
    given = parser.parse_args()
    if not given.config.exists():
        print(f"{given.config}: no such file; `make servers` makes the demo's, or name yours with --config")
        return 2
    url, key = os.environ.get("OPENAI_BASE_URL", URL), os.environ.get("OPENAI_API_KEY", "")
    try:
        print(asyncio.run(answer(given.config, given.task, url, key, given.model, given.budget)))
    except httpx2.HTTPError as error:
        print(f"{url}: {error or type(error).__name__}; is the endpoint up, and the model there?", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
