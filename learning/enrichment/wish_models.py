"""The language models that are asked for wishes: behind an endpoint, or on this machine.

An endpoint is an OpenAI-compatible `/chat/completions`: Ollama, llama.cpp, LM Studio, vLLM or a provider. On this
machine, llama.cpp runs a file of weights (`foretool[llm]`), and nothing is sent. The form of its answer is forced while
it is written, so that a small model cannot miss it.
"""

from __future__ import annotations

import asyncio
import os
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from foretool.learning.enrichment.answer import FORMAT, MOST_ANSWER, MOST_CHARACTERS, write_messages, write_request
from foretool.server.catalog.model_endpoint import EndpointClient, PostError, quote_body, read_completion
from foretool.server.config.settings import EnrichEntry
from foretool.server.trust.text import one_line

_ANSWER_S: Final = 120.0
"""How long one answer may take: a small model on a processor needs a minute for a long definition."""
_TRIES: Final = 4
_PAUSE_S: Final = 1.0
"""The pause before the second try; doubled each time."""
_MOST_BYTES: Final = 1024 * 1024
"""Bytes of an answer that are read."""
_QUOTED: Final = 120
"""Characters of an answer that a message quotes."""
_MOST_TOKENS: Final = 1_000_000
"""A larger count is not believed."""
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


class EndpointError(Exception):
    """A question had no answer, in one line."""


class RefusedError(EndpointError):
    """The endpoint refuses all questions: the key, the model or the address is wrong."""


class ModelReply(Struct, frozen=True):
    """What the model wrote, and the tokens that were read and written as far as the endpoint says."""

    content: str
    tokens: int


class ChatEndpoint:
    def __init__(self, entry: EnrichEntry, pause_s: float = _PAUSE_S) -> None:
        self._entry = entry
        self._pause_s = pause_s
        self._is_plain = False
        """Whether the server refuses the members that not all servers know."""
        self._address = f"{entry.url.rstrip('/')}/chat/completions"
        self._client = EndpointClient(_MOST_BYTES, _ANSWER_S)

    async def close(self) -> None:
        await self._client.close()

    async def ask(self, text: str) -> ModelReply:
        """Ask about one tool; try again where the endpoint is busy. Raises `EndpointError`."""
        pause = self._pause_s
        for _ in range(_TRIES - 1):
            try:
                return await self._ask(text)
            except _BusyError:
                await asyncio.sleep(pause)
                pause *= 2
        return await self._ask(text)

    async def _ask(self, text: str) -> ModelReply:
        is_plain = self._is_plain
        status, body = await self._post(write_request(self._entry.model, text, plain=is_plain))
        if status in (400, 422) and not is_plain:
            # Some servers know no `response_format`, some models no `temperature`.
            status, body = await self._post(write_request(self._entry.model, text, plain=True))
            self._is_plain |= status == 200
        if status != 200:
            raise self._refusal(status, body)
        try:
            content, tokens = read_completion(body)
        except ValueError:
            raise EndpointError(self._say(f"sent no completion: {quote_body(body, _QUOTED)}")) from None
        if not content:
            raise EndpointError(self._say("sent an empty answer; is the limit of its context too small?"))
        return ModelReply(content, tokens if 0 <= tokens <= _MOST_TOKENS else 0)

    async def _post(self, asked: dict[str, Any]) -> tuple[int, bytes]:
        try:
            return await self._client.post(self._address, self._entry.key, asked)
        except PostError as error:
            kind = {"unreachable": _BusyError, "address": RefusedError, "size": EndpointError}[error.kind]
            raise kind(self._say(str(error))) from None

    def _refusal(self, status: int, body: bytes) -> EndpointError:
        said = f"answered {status}: {quote_body(body, _QUOTED)}"
        if status == 429 or status >= 500:
            return _BusyError(self._say(said))
        if 300 <= status < 400:
            return RefusedError(self._say(f"answered {status}, and redirects are not followed; correct enrich.url"))
        if status in (401, 403):
            return RefusedError(self._say(f"{said}; correct enrich.key"))
        if status == 404:
            return RefusedError(self._say(f"{said}; correct enrich.url, which ends before /chat/completions, or model"))
        return EndpointError(self._say(said))

    def _say(self, what: str) -> str:
        said = f"{self._address}: {what}"
        return said.replace(self._entry.key, "[key]") if self._entry.key else said


class _BusyError(EndpointError):
    """The endpoint is busy or unreachable, which may pass."""


class LocalModel:
    """Asks one model, one question after the other."""

    def __init__(self, entry: EnrichEntry) -> None:
        self._entry = entry
        self._turn = asyncio.Lock()
        self._llm: Any = None

    async def close(self) -> None:
        self._llm = None

    async def ask(self, text: str) -> ModelReply:
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
