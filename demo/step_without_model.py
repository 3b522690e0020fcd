"""The library without any model: what one step would give an agent, and one call.

    make servers
    python demo/step_without_model.py
    python demo/step_without_model.py "add a file to the repository" --config mcp.json --shape anthropic

Without a model nobody fills in arguments, so only the default task ends with a call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path

import servers

from foretool import Foretool

TASK = "what time is it in Tokyo"
CALL = ("time__get_current_time", {"timezone": "Asia/Tokyo"})
"""The call that a model would make of the task."""


async def show(config: Path, task: str, budget: int, shape: str) -> None:
    async with Foretool(config, name="step without model") as ft:
        step = await ft.step(task, budget=budget)
        print(f"confidence {step.confidence} ({step.probability:.2f}), {step.tokens} of {budget} tokens")
        print(f"instructions from: {', '.join(step.instructions) or 'nowhere'}")
        print(f"\n{step.system_prompt}\n")
        for tool in getattr(step.tools, shape):
            print(json.dumps(tool, ensure_ascii=False)[:160])
        wider = await step.widen(sufficiency=0.2)
        print(f"\nrated 0.2 of 1: {len(step.tools)} tools become {len(wider.tools)} ({wider.fallback})")
        name, arguments = CALL
        if task == TASK and name in step.tools:
            result = await step.call(name, arguments)
            print(f"{name}({json.dumps(arguments)})\n-> {' '.join(result.text.split())}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", nargs="?", default=TASK)
    parser.add_argument("--config", type=Path, default=servers.CONFIG, help="default: that of the demo")
    parser.add_argument("--budget", type=int, default=2000, help="tokens of prompt and tools; default %(default)s")
    parser.add_argument("--shape", choices=("mcp", "openai", "anthropic"), default="openai")
    arguments = parser.parse_args()
    if not arguments.config.exists():
        print(f"{arguments.config}: no such file; `make servers` makes the demo's, or name yours with --config")
        return 2
    asyncio.run(show(arguments.config, arguments.task, arguments.budget, arguments.shape))
    return 0


if __name__ == "__main__":
    sys.exit(main())
