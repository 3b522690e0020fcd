"""Sends questions to an OpenAI-compatible `/chat/completions`: Ollama, llama.cpp, LM Studio, vLLM or a provider."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from msgspec import Struct

from foretool.learning.enrichment.answer import write_request
from foretool.server.catalog.model_endpoint import EndpointClient, PostError, quote_body, read_completion
from foretool.server.config.settings import EnrichEntry

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


class EndpointError(Exception):
    """A question had no answer, in one line."""


class RefusedError(EndpointError):
    """The endpoint refuses all questions: the key, the model or the address is wrong."""


class ModelReply(Struct, frozen=True):
    """What the model wrote, and the tokens that were read and written as far as the endpoint says."""

    content: str
    tokens: int


class ChatEndpoint:
    """Asks one model."""

    def __init__(self, entry: EnrichEntry, pause_s: float = _PAUSE_S) -> None:
        self._entry = entry
        self._pause_s = pause_s
        self._is_plain = False
        """Whether the server refuses the members that not all servers know."""
        self._address = f"{entry.url.rstrip('/')}/chat/completions"
        self._client = EndpointClient(_MOST_BYTES, _ANSWER_S)

    async def close(self) -> None:
        """Close all connections."""
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
