"""Asks a language model of this machine for the wordings of all tools of a set, as `foretool enrich` does.

    python -m bench.retrieval.written_wordings FOLDER MODEL.gguf FILE [--json]

The question is that of the command, llama.cpp (`foretool[llm]`) runs the model as there, and as much is kept of an
answer. FILE gets a line a tool: server, tool and wishes with tabs between, as `bench.retrieval.ranking FOLDER
--wordings FILE` reads them. A run that was ended goes on where it was. At the end it prints tools, those of which
nothing could be used, tokens, and the seconds that one tool takes in the middle.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from bench import options
from bench.datasets import read_server_texts, read_tools
from bench.reports import print_row
from foretool.learning.enrichment.answer import AnswerError, OtherNames, read_answer
from foretool.learning.enrichment.endpoint import EndpointError, RefusedError
from foretool.learning.enrichment.local_model import LocalModel
from foretool.learning.enrichment.run import LanguageModel, name_tools
from foretool.retrieval.document import document, embedded_text
from foretool.server.config.settings import EnrichEntry
from foretool.server.trust.text import clean
from foretool.storage.records import Tool

SEED = 7
"""Tools are asked about in this order, so that a run that was ended has a fair part of a set."""


def write(tools: list[Tool], texts: dict[str, str], model: LanguageModel, file: Path) -> dict[str, Any]:
    """Ask about every tool that FILE has no line of, and return what came of it."""
    have = {tuple(line.split("\t")[:2]) for line in file.read_text("utf-8").splitlines()} if file.exists() else set()
    names = name_tools(tools, texts)
    waiting = [tool for tool in tools if (tool.upstream, tool.name) not in have]
    random.Random(SEED).shuffle(waiting)
    took, tokens, empty = list[float](), 0, 0
    with file.open("a", encoding="utf-8") as out, asyncio.Runner() as runner:
        for tool in waiting:
            started = time.perf_counter()
            wishes, read = runner.run(ask(tool, texts.get(tool.upstream, ""), model, names))
            took.append(time.perf_counter() - started)
            tokens += read
            empty += not wishes
            out.write("\t".join((tool.upstream, tool.name, *(wishes or ("",)))) + "\n")
            out.flush()
    return {"tools": len(tools), "asked": len(took), "empty": empty, "tokens": tokens} | (
        {"a_tool_s": median(took)} if took else {}
    )


async def ask(tool: Tool, server_text: str, model: LanguageModel, names: OtherNames) -> tuple[tuple[str, ...], int]:
    """Return what is kept of the answer about a tool, and the tokens of question and answer."""
    text = clean(embedded_text(document(tool, server_text)))
    try:
        reply = await model.ask(text)
        return read_answer(reply.content, text, names), reply.tokens
    except RefusedError as error:
        raise SystemExit(str(error)) from None
    except (EndpointError, AnswerError) as error:
        print(f"{tool.id}: {error}", file=sys.stderr, flush=True)
        return (), 0


def main(argv: list[str] | None = None) -> None:
    """Ask, and print one line."""
    parser = options.make_parser(__name__, __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("file", type=Path)
    options.add_json(parser)
    arguments = parser.parse_args(argv)
    tools = read_tools(arguments.folder)
    texts = read_server_texts(arguments.folder)
    model = LocalModel(EnrichEntry(model=str(arguments.model)))
    print_row(write(tools, texts, model, arguments.file), arguments.json)


if __name__ == "__main__":
    main()
