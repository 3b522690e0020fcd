"""Sends questions to a model behind an OpenAI-compatible endpoint that the user named, and reads what it wrote.

The key goes into one header and nowhere else. No redirect is followed, so nothing is sent to an address that the config
does not name. An answer is bounded in bytes; its time is the caller's.

    client = EndpointClient(most_bytes=1024 * 1024)
    status, body = await client.post("http://127.0.0.1:11434/v1/chat/completions", "", {"model": ..., "messages": ...})
    content, tokens = read_completion(body)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from foretool.server.system.http_clients import make_client
from foretool.server.trust.text import one_line

if TYPE_CHECKING:
    from httpx2 import AsyncClient


class PostError(Exception):
    """The endpoint of a model gave no answer; the text says why in one line. `kind` tells whether it cannot be reached
    now, its address is unusable, or its answer is too large."""

    def __init__(self, kind: Literal["unreachable", "address", "size"], said: str) -> None:
        super().__init__(said)
        self.kind = kind


class _Message(Struct, frozen=True):
    content: str | None = None


class _Choice(Struct, frozen=True):
    message: _Message


class _Usage(Struct, frozen=True):
    total_tokens: int = 0


class _Completion(Struct, frozen=True):
    choices: list[_Choice]
    usage: _Usage | None = None


class EndpointClient:
    """Sends questions to endpoints of models, over connections that stay open."""

    def __init__(self, most_bytes: int, timeout_s: float | None = None) -> None:
        self._most_bytes = most_bytes
        self._timeout_s = timeout_s
        self._clients: dict[str, AsyncClient] = {}
        """By the address that they ask."""

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    def _client_for(self, address: str) -> AsyncClient:
        """Return a client that reaches an address. Raises ValueError for a proxy that cannot be used."""
        from httpx2 import AsyncClient  # 0.1 s, which only a config with an endpoint pays

        if address not in self._clients:
            client = make_client(AsyncClient, address, timeout=self._timeout_s, follow_redirects=False)
            self._clients[address] = client
        return self._clients[address]

    async def post(self, address: str, key: str, asked: dict[str, Any]) -> tuple[int, bytes]:
        """Send one question; return the status and the whole answer. Raises `PostError`."""
        import httpx2

        headers = {"Authorization": f"Bearer {key}"} if key else {}
        body = bytearray()
        try:
            client = self._client_for(address)
            async with client.stream("POST", address, json=asked, headers=headers) as answer:
                async for part in answer.aiter_bytes():
                    body += part
                    if len(body) > self._most_bytes:
                        raise PostError("size", f"sent more than {self._most_bytes:,} bytes")
                return answer.status_code, bytes(body)
        except httpx2.HTTPError as error:
            raise PostError("unreachable", f"{type(error).__name__}: {one_line(str(error), 120)}") from None
        except (httpx2.InvalidURL, ValueError) as error:
            raise PostError("address", one_line(str(error), 200)) from None


def read_completion(body: bytes) -> tuple[str, int]:
    """Return what the model wrote, and the tokens that were read and written as far as the endpoint says. Raises
    ValueError for what is no completion."""
    try:
        read = msgspec.json.decode(body, type=_Completion)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError("no completion") from error
    content = read.choices[0].message.content if read.choices else None
    return content or "", read.usage.total_tokens if read.usage else 0


def answer_form(name: str, member: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the `response_format` that asks for an object with one member."""
    form = {"type": "object", "properties": {member: schema}, "required": [member], "additionalProperties": False}
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": form}}


def quote_body(body: bytes, characters: int) -> str:
    """Return the beginning of an answer, in one line."""
    return one_line(body[:2_000].decode("utf-8", "replace"), characters) or "nothing"
