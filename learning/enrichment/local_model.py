"""Asks a language model of this machine: a file of weights that llama.cpp runs (`foretool[llm]`). Nothing is sent.

The form of the answer is forced while it is written, so that a small model cannot miss it.
"""

from __future__ import annotations

import asyncio
import os
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from foretool.learning.enrichment.answer import FORMAT, MOST_ANSWER, MOST_CHARACTERS, write_messages
from foretool.learning.enrichment.endpoint import EndpointError, ModelReply, RefusedError
from foretool.server.config.settings import EnrichEntry
from foretool.server.trust.text import one_line

INSTALL: Final = "pip install 'foretool[llm]'"
_CONTEXT: Final = 4096
"""Tokens of question and answer."""


_SCHEMA: Final[dict[str, Any]] = FORMAT["json_schema"]["schema"]
_WISHES: Final[dict[str, Any]] = _SCHEMA["properties"]["wishes"]
_SHAPE: Final = {
    "type": "json_object",
    "schema": _SCHEMA
    | {"properties": {"wishes": _WISHES | {"minItems": 1, "items": {"type": "string", "maxLength": MOST_CHARACTERS}}}},
}
"""With the length of a wish too, which not every API takes: five of them end before `MOST_ANSWER`."""


class LocalModel:
    """Asks one model, one question after the other."""

    def __init__(self, entry: EnrichEntry) -> None:
        self._entry = entry
        self._turn = asyncio.Lock()
        self._llm: Any = None

    async def close(self) -> None:
        """Let the model go."""
        self._llm = None

    async def ask(self, text: str) -> ModelReply:
        """Ask about one tool. Raises `EndpointError`."""
        async with self._turn:
            return await asyncio.to_thread(self._ask, text)

    def _ask(self, text: str) -> ModelReply:
        if self._llm is None:
            self._llm = self._open()
        # llama.cpp drops what it has read of another tool, and keeps our instructions, with which both begin.
        try:
            answer = self._llm.create_chat_completion(
                messages=write_messages(text), temperature=0.0, max_tokens=MOST_ANSWER, response_format=_SHAPE
            )
        except (ValueError, RuntimeError) as error:
            raise EndpointError(f"{self._entry.name}: {one_line(str(error), 120)}") from None
        content = answer["choices"][0]["message"]["content"]
        if not content:
            raise EndpointError(f"{self._entry.name} wrote nothing")
        return ModelReply(content, answer["usage"]["total_tokens"])

    def _open(self) -> Any:
        path = Path(self._entry.model)
        if not path.is_file():
            raise RefusedError(f"enrich.model: expected a file of weights, found none at {path}")
        try:
            llama = import_module("llama_cpp")
        except ImportError:
            raise RefusedError(f"enrich.model: llama.cpp is not installed, which runs {path.name}; {INSTALL}") from None
        threads = int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
        try:
            return llama.Llama(str(path), n_ctx=_CONTEXT, n_threads=threads, n_threads_batch=threads, verbose=False)
        except (ValueError, RuntimeError, OSError) as error:
            problem = one_line(str(error), 120)
            raise RefusedError(f"enrich.model: llama.cpp cannot open {path}: {problem}; is it a whole GGUF?") from None
