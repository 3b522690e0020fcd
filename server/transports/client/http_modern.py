"""HTTP clients of the modern era: each request stands alone.

A request is checked against its headers, is answered with JSON if its reply is the first thing to say, else with a
stream of events, and is cancelled when its client goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET

from foretool.server.protocol import headers as http_headers
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.headers import Headers
from foretool.server.protocol.jsonrpc import Message, RpcError
from foretool.server.transports.client import http_request
from foretool.server.transports.client.base import Front, Fronts
from foretool.server.transports.client.event_store import Memory, Stream
from foretool.server.transports.client.http_request import HttpRequest
from foretool.server.transports.client.security import Refused

STATUSES: Final[Mapping[int, int]] = {
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.INVALID_PARAMS: 400,
    jsonrpc.HEADER_MISMATCH: 400,
    jsonrpc.MISSING_CAPABILITY: 400,
    jsonrpc.UNSUPPORTED_VERSION: 400,
    jsonrpc.METHOD_NOT_FOUND: 404,
}
"""HTTP status of a reply by its error code; 200 for any other."""

Admit = Callable[[str, str], None]
InputSchema = Callable[[str, str], Any]


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
        self._by_caller: dict[tuple[str, str], Front] = {}

    async def serve(self, request: HttpRequest, profile: str, principal: str) -> None:
        """Answer one POST. Raises as `HttpRequest.message` does."""
        message = await request.message()
        if message.method is UNSET:
            raise Refused(400, "a client has nothing to reply to in this revision; send requests")
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
            await request.reply(STATUSES.get(error.code, 200), jsonrpc.failure(ident, data))
            return
        await self._answer(request, message, self._front(profile, principal), principal)

    def _check_arguments(self, message: Message, headers: Headers, profile: str) -> None:
        if message.method != "tools/call" or self._input_schema is None:
            return
        params = jsonrpc.fields(message.params)
        schema = self._input_schema(profile, jsonrpc.text(params.get("name")) or "")
        if schema is not None:
            arguments = jsonrpc.plain(params["arguments"]) if "arguments" in params else {}
            http_headers.check_params(schema, arguments, headers)

    def _front(self, profile: str, principal: str) -> Front:
        self._admit(principal, profile)
        key = (principal, profile)
        if key not in self._by_caller:
            # What belongs to no request goes nowhere: clients ask for it with `subscriptions/listen`.
            nowhere = Stream("")
            nowhere.end()
            self._by_caller[key] = self._fronts.open("modern", "http", nowhere, profile, principal)
        return self._by_caller[key]

    async def _answer(self, request: HttpRequest, message: Message, front: Front, principal: str) -> None:
        stream = Stream("", memory=self._memory)
        reader = stream.attach(request.abort)
        self.open[stream] = principal
        try:
            front.receive(message, stream)
            if not stream.is_finished and stream.is_read:
                request.watch(reader.wake)
                await reader.wait(http_request.PING_S)
            reply = stream.take_only()
            if reply is not None:
                await request.reply(STATUSES.get(stream.code or 0, 200), reply)
            elif not request.is_gone:
                await request.send_events(reader)
        finally:
            self.open.pop(stream, None)
            if not stream.is_finished:
                front.cancel(stream, "the client closed the stream of the request")
                stream.end()
            stream.detach(reader)
            stream.release()

    def close_refused(self, opens: Callable[[str, str], bool]) -> None:
        """Close the fronts of those who may not come in any more: their requests are cancelled, their streams end."""
        for caller in [caller for caller in self._by_caller if not opens(*caller)]:
            self._by_caller.pop(caller).close()

    def close(self) -> None:
        fronts, self._by_caller = list(self._by_caller.values()), {}
        for front in fronts:
            front.close()
        for stream in list(self.open):
            stream.end()
