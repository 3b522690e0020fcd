"""HTTP clients of the modern era: each request stands alone.

A request is checked against its headers, is answered with JSON if its reply is the first thing to say, else with a
stream of events, and is cancelled when its client goes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET

from foretool.server.protocol import headers as http_headers
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.headers import Headers
from foretool.server.protocol.jsonrpc import Message, RpcError
from foretool.server.transports.client import http_request
from foretool.server.transports.client.access import Identity
from foretool.server.transports.client.base import Front, Fronts
from foretool.server.transports.client.event_store import Memory, Stream
from foretool.server.transports.client.http_request import HttpRequest
from foretool.server.transports.client.security import RequestRefused

_STATUSES: Final[Mapping[int, int]] = {
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.INVALID_PARAMS: 400,
    jsonrpc.HEADER_MISMATCH: 400,
    jsonrpc.MISSING_CAPABILITY: 400,
    jsonrpc.UNSUPPORTED_VERSION: 400,
    jsonrpc.METHOD_NOT_FOUND: 404,
}
"""HTTP status of a reply by its error code; 200 for any other."""

Admit = Callable[[Identity, str], None]
InputSchema = Callable[[str, str], Any]


class _Caller:
    """One principal in one profile."""

    def __init__(self, front: Front, identity: Identity) -> None:
        self.front = front
        self.identity = identity
        """Who sent the latest request."""
        self.open = 0
        """Requests that are not answered yet."""
        self.used_at = time.monotonic()


class ModernClients:
    """Serves the modern era, with one `Front` per credential and profile. `admit`: as for `LegacyClients`.
    `input_schema`: as for `HttpServer`."""

    def __init__(self, fronts: Fronts, admit: Admit, input_schema: InputSchema | None, memory: Memory) -> None:
        self.open: dict[Stream, str] = {}
        """Requests that are not answered yet, each with its principal."""
        self._memory = memory
        self._fronts = fronts
        self._admit = admit
        self._input_schema = input_schema
        self._by_caller: dict[tuple[str, str], _Caller] = {}

    async def serve(self, request: HttpRequest, profile: str, identity: Identity) -> None:
        """Answer one POST. Raises as `HttpRequest.message` does."""
        message = await request.message()
        if message.method is UNSET:
            raise RequestRefused(400, "a client has nothing to reply to in this revision; send requests")
        ident = None if message.id is UNSET else message.id
        try:
            if ident is None:
                # Accepted and dropped, as in the SDK: by ids that clients choose, one could cancel another's work.
                http_headers.check_version(request.headers)
                await request.reply(202)
                return
            http_headers.check_request(message, request.headers)
            self._check_arguments(message, request.headers, profile)
        except RpcError as error:
            data = jsonrpc.error_object(error.code, str(error), error.data)
            await request.reply(_STATUSES.get(error.code, 200), jsonrpc.failure(ident, data))
            return
        await self._answer(request, message, self._caller(profile, identity))

    def _check_arguments(self, message: Message, headers: Headers, profile: str) -> None:
        if message.method != "tools/call" or self._input_schema is None:
            return
        params = jsonrpc.fields(message.params)
        schema = self._input_schema(profile, jsonrpc.text(params.get("name")) or "")
        if schema is not None:
            arguments = jsonrpc.decode_value(params["arguments"]) if "arguments" in params else {}
            http_headers.check_params(schema, arguments, headers)

    def _caller(self, profile: str, identity: Identity) -> _Caller:
        self._admit(identity, profile)
        key = (identity.principal, profile)
        caller = self._by_caller.get(key)
        if caller is None:
            # What belongs to no request goes nowhere: clients ask for it with `subscriptions/listen`.
            nowhere = Stream("")
            nowhere.end()
            front = self._fronts.open("modern", "http", nowhere, profile, identity.principal, name=identity.name)
            caller = self._by_caller[key] = _Caller(front, identity)
        caller.identity = identity
        return caller

    async def _answer(self, request: HttpRequest, message: Message, caller: _Caller) -> None:
        stream, front = Stream("", memory=self._memory), caller.front
        reader = stream.attach(request.abort)
        self.open[stream] = caller.identity.principal
        caller.open += 1
        try:
            front.receive(message, stream)
            if not stream.is_finished and stream.is_read:
                request.watch(reader.wake)
                await reader.wait(http_request.PING_S)
            reply = stream.take_only()
            if reply is not None:
                await request.reply(_STATUSES.get(stream.code or 0, 200), reply)
            elif not request.is_gone:
                await request.send_events(reader)
        finally:
            self.open.pop(stream, None)
            caller.open -= 1
            caller.used_at = time.monotonic()
            if not stream.is_finished:
                front.cancel(stream, "the client closed the stream of the request")
                stream.end()
            stream.detach(reader)
            stream.release()

    def close_refused(self, opens: Callable[[Identity, str], bool]) -> None:
        """Close the fronts of those who may not come in any more: their requests are cancelled, their streams end."""
        for key, caller in list(self._by_caller.items()):
            if not opens(caller.identity, key[1]):
                self._by_caller.pop(key).front.close()

    def expire(self, now: float, idle_s: float) -> None:
        """Forget the callers that have sent nothing for `idle_s` seconds. `now`: monotonic seconds."""
        for key, caller in list(self._by_caller.items()):
            if idle_s and not caller.open and now - caller.used_at > idle_s:
                self._by_caller.pop(key).front.close()

    def close(self) -> None:
        callers, self._by_caller = list(self._by_caller.values()), {}
        for caller in callers:
            caller.front.close()
        for stream in list(self.open):
            stream.end()
