"""`tools/call`: our own two tools, and every other tool by its name or through the bridge.

What a call means is `Session`'s to decide; what is done about it is here. Each outcome is recorded before its answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.catalog.names import CALL, DISCOVER, OWN
from foretool.server.clients.client import lost_text
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.session import Conversation, Forward, Session
from foretool.server.methods import discover_tools
from foretool.server.methods.prediction import Hint, with_meta, with_text
from foretool.server.methods.server_requests import refusal
from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.headers import call_headers
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw, RpcError
from foretool.server.upstreams.connection import Lost, Reply
from foretool.storage.records import Call, Discovery, Miss, Outcome, Tool, ToolId

if TYPE_CHECKING:
    from foretool.retrieval.ranking import Query, Ranking
    from foretool.server.proxy import Proxy
    from foretool.server.upstreams.upstream import Upstream

Via = Literal["name", "bridge"]

RANKED: Final = 50
"""How deep is ranked for a profile that does not have every upstream."""


class _Attempt(Struct):
    """One call of one tool, from the decision to the record."""

    session: Session
    handle: str
    tool: Tool
    upstream: Upstream
    via: Via
    forward: Forward
    misses: list[Miss]
    shape: str
    at: float
    started: float
    hint: Hint | None = None
    grew: bool = False
    """The list grew for what comes next, and the client was told."""


class Calls:
    """See the module."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    def start(self, exchange: Exchange) -> None:
        """Answer one `tools/call`. Raises `RpcError` for a request that is wrong in itself."""
        name = jsonrpc.text(exchange.params.get("name"))
        if name is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "tools/call: name is missing")
        if name == DISCOVER:
            self._discover(exchange, exchange.params.get("arguments", jsonrpc.EMPTY))
        elif name == CALL:
            self._bridge(exchange)
        else:
            self._call(exchange, name, "name")

    def _belongs(self, exchange: Exchange, handle: str) -> None:
        """Take up the conversation that a handle stands for. When it comes back for the first time, the discovery that
        gave it out is known to have been of that conversation."""
        chat = exchange.chat = _session(exchange).conversation(handle)
        if chat.opened_by:
            self._proxy.recorder.name_discovery(chat.opened_by, chat.handle)
            chat.opened_by = 0

    # -- discover_tools

    def _discover(self, exchange: Exchange, raw: Raw) -> None:
        arguments = discover_tools.read_arguments(raw)
        self._belongs(exchange, arguments.handle)
        # Before the first upstreams have said what they have, nothing would be found.
        self._proxy.when_listed(
            lambda: exchange.client.attempt(exchange, lambda _, exchange: self._search(exchange, arguments))
        )

    def _search(self, exchange: Exchange, arguments: discover_tools.Arguments) -> None:
        proxy, session = self._proxy, _session(exchange)
        proxy.catalog.fix_names()
        chat = exchange.chat or session.conversation()
        started = time.perf_counter()
        chat.asks(arguments.lines, proxy.clock())
        query = discover_tools.query(arguments, chat.steps, chat.servers_in_use())
        profile = exchange.client.profile
        # Those of other profiles are left out afterwards.
        limit = arguments.wanted if profile.servers == ("*",) else max(RANKED, arguments.wanted)

        proxy.search.find(
            query,
            profile.admits,
            limit,
            lambda ranking: self._found(exchange, arguments, query, ranking, chat, started),
            lambda step: exchange.client.attempt(exchange, lambda *_: step()),
        )

    def _found(
        self,
        exchange: Exchange,
        arguments: discover_tools.Arguments,
        query: Query,
        ranking: Ranking,
        chat: Conversation,
        started: float,
    ) -> None:
        proxy, session = self._proxy, _session(exchange)
        profile, catalog = exchange.client.profile, proxy.catalog
        level, probability = proxy.search.assess(ranking)
        found = discover_tools.answer(
            arguments,
            ranking,
            level,
            catalog,
            session.sees,
            profile.admits,
            proxy.settings.answer_tokens,
            proxy.settings.tool_tokens,
            proxy.instructions.beside(query, ranking, level, profile) if query.lines else (),
            proxy.search.count_unindexed(),
        )
        kept = Discovery(
            session=session.record.key, at=proxy.clock(), task=arguments.task if proxy.keeps_text else "",
            names=arguments.names, sufficiency=arguments.sufficiency, level=found.level, matches=found.matches,
            tokens=found.tokens, took_ms=(time.perf_counter() - started) * 1000, handle=chat.handle,
            probability=probability,
        )  # fmt: skip
        id = proxy.recorder.discovery(kept)
        for miss in session.discovered(kept, id, len(catalog), chat):
            proxy.recorder.miss(miss)
        found = discover_tools.with_handle(found, session.handle_for(chat, id))
        content = [{"type": "text", "text": found.text}]
        result = {"content": content, "structuredContent": found.structured}
        foresight, client = proxy.foresight, exchange.client
        grows = foresight.grow_by(client, session, kept)
        if (hint := foresight.hint(client, session, chat, foresight.next(chat))) is not None:
            content.append({"type": "text", "text": hint.text})
        if grows:
            exchange.client.hold(lambda: exchange.own_result(result))
        else:
            exchange.own_result(result)

    # -- call_tool

    def _bridge(self, exchange: Exchange) -> None:
        wrapped = jsonrpc.fields(exchange.params.get("arguments", UNSET))
        name = jsonrpc.text(wrapped.get("name"))
        if not name:
            self._fail(exchange, "bridge", 'call_tool: "name" is missing; say which tool to call')
            return
        if name == DISCOVER:
            self._discover(exchange, wrapped.get("arguments", jsonrpc.EMPTY))
            return
        if name in OWN:
            raise RpcError(jsonrpc.INVALID_PARAMS, "call_tool cannot call itself; name the tool to call")
        self._belongs(exchange, jsonrpc.text(wrapped.get("handle")) or "")
        exchange.params = {key: value for key, value in exchange.params.items() if key not in ("name", "arguments")}
        exchange.params["arguments"] = wrapped.get("arguments", jsonrpc.EMPTY)
        self._call(exchange, name, "bridge")

    def _refusal(self, exchange: Exchange, tool: Tool) -> str:
        """Why the bridge does not pass this call: arguments that do not fit, or a destructive tool. "": it does."""
        members = jsonrpc.fields(tool.definition)
        schema = jsonrpc.plain(members["inputSchema"])
        arguments = jsonrpc.plain(exchange.params["arguments"])
        if errors := discover_tools.argument_errors(schema, arguments):
            wanted = jsonrpc.encode(schema).decode()
            return f"the arguments of {tool.id} do not fit its schema: {'; '.join(errors)}. inputSchema: {wanted}"
        return ""

    # -- any tool

    def _call(self, exchange: Exchange, name: str, via: Via) -> None:
        proxy = self._proxy
        tool = proxy.catalog.find(name)
        if tool is not None:
            self._call_known(exchange, name, via, tool)
            return

        def once_listed() -> None:
            exchange.client.attempt(exchange, lambda _, exchange: self._call_known(exchange, name, via))

        # Its upstream has not listed yet, or one may that has it: the name may be right, so wait rather than deny it.
        if (upstream := proxy.unlisted_upstream(name)) is not None:
            proxy.when_upstream_listed(upstream, exchange.era, once_listed)
        else:
            proxy.when_listed(once_listed)

    def _call_known(self, exchange: Exchange, name: str, via: Via, tool: Tool | None = None) -> None:
        proxy, session = self._proxy, _session(exchange)
        proxy.catalog.fix_names()
        tool = tool or proxy.catalog.find(name) or self._meant(name) or self._unlisted(name, exchange, via)
        if tool is None:
            self._unknown(exchange, session, name, via)
            return
        if not proxy.exposures.allowed(exchange.client.profile, tool.upstream):
            proxy.recorder.miss(session.denied(tool, proxy.clock(), exchange.chat))
            self._fail(exchange, via, f"tool {name!r} is not in profile {exchange.client.profile.name!r}")
            return
        if via == "bridge" and (refusal := self._refusal(exchange, tool)):
            exchange.own_result({"content": [{"type": "text", "text": refusal}], "isError": True})
            return
        if via == "bridge" and not session.sees(tool.id) and _is_destructive(tool):
            self._confirm(exchange, tool, lambda at: self._go(at, session, tool, via))
            return
        self._go(exchange, session, tool, via)

    def _meant(self, name: str) -> Tool | None:
        """The tool behind a name that is nearly right: only if no other can be meant, and it changes nothing."""
        candidates, sure = self._proxy.catalog.near(name)
        tool = self._proxy.catalog.get(candidates[0]) if sure else None
        return tool if tool is not None and _annotation(tool, "readOnlyHint") is True else None

    def _unlisted(self, name: str, exchange: Exchange, via: Via) -> Tool | None:
        """A name that nobody lists, where one upstream stands under its own names: a server may have tools that it
        does not list, and knows best what to say of others."""
        bare = [name for name, server in self._proxy.config.servers.items() if not server.prefix]
        if via == "bridge" or len(bare) != 1 or not self._proxy.exposures.allowed(exchange.client.profile, bare[0]):
            return None
        return Tool(ToolId(name), bare[0], name, b"{}", "")

    def _unknown(self, exchange: Exchange, session: Session, name: str, via: Via) -> None:
        if (upstream := self._proxy.unlisted_upstream(name)) is not None:
            self._unreachable(exchange, session, upstream, name, via)
            return
        candidates = discover_tools.close_names(name, self._proxy.catalog, exchange.client.profile.admits)
        self._proxy.recorder.miss(session.unknown(name, candidates, self._proxy.clock(), exchange.chat))
        meant = f"; did you mean {', '.join(candidates)}?" if candidates else ""
        self._fail(exchange, via, f"Unknown tool: {name}{meant} discover_tools finds tools by task")

    def _unreachable(self, exchange: Exchange, session: Session, upstream: Upstream, name: str, via: Via) -> None:
        """The upstream that may have the tool could not be asked for its list."""
        self._proxy.recorder.miss(session.unreachable(name, upstream.name, via, self._proxy.clock(), exchange.chat))
        lost = Lost(upstream.error or "its tools are not known yet", sent=False)
        text = self._proxy.config.redact(lost_text(upstream.name, lost, repr(name)))
        exchange.own_result({"content": [{"type": "text", "text": text}], "isError": True})

    def _fail(self, exchange: Exchange, via: Via, text: str) -> None:
        """A protocol error for a call by name (specification: tools), a result the model can read for the bridge."""
        if via == "name":
            exchange.error(jsonrpc.INVALID_PARAMS, text)
        else:
            exchange.own_result({"content": [{"type": "text", "text": text}], "isError": True})

    def _confirm(self, exchange: Exchange, tool: Tool, go: Callable[[Exchange], None]) -> None:
        """A hidden destructive tool through the bridge: the user says, or the setting does."""
        allowed = self._proxy.settings.bridge_destructive
        if allowed == "allow":
            go(exchange)
        elif allowed == "ask" and refusal("elicitation/create", UNSET, exchange.client.declared(exchange)) is None:
            params = {
                "message": f"{tool.id} is marked as destructive. Run it?",
                "requestedSchema": {"type": "object", "properties": {}},
            }

            def answered(at: Exchange, message: Message) -> None:
                at.params, at.chat = exchange.params, exchange.chat  # a modern client's retry is wrapped once more
                if _has_accepted(message):
                    go(at)
                else:
                    self._refuse_destructive(at, tool, "the user did not agree")

            self._proxy.questions.ask(exchange, "elicitation/create", jsonrpc.raw(params), answered)
        else:
            self._refuse_destructive(exchange, tool, "call_tool does not pass tools marked destructive")

    def _refuse_destructive(self, exchange: Exchange, tool: Tool, reason: str) -> None:
        way_out = f'pin it ("pin" of server {tool.upstream!r}) to have it listed, and call it by name'
        text = f"{tool.id} was not run: {reason}; {way_out}"
        exchange.own_result({"content": [{"type": "text", "text": text}], "isError": True})

    def _go(self, exchange: Exchange, session: Session, tool: Tool, via: Via) -> None:
        proxy = self._proxy
        at = proxy.clock()
        decisions = session.call(tool, via, at, exchange.chat)
        misses = [decision for decision in decisions if isinstance(decision, Miss)]
        forward = next(decision for decision in decisions if isinstance(decision, Forward))
        arguments = exchange.params.get("arguments")
        shape = proxy.argument_record(arguments)
        upstream = proxy.upstreams[tool.upstream]
        handle = exchange.chat.handle if exchange.chat else ""
        if arguments is not None and proxy.keeps_text:
            proxy.flows.called((session.record.key, handle), tool.id, arguments)
        attempt = _Attempt(session, handle, tool, upstream, via, forward, misses, shape, at, time.perf_counter())
        params = {**exchange.params, "name": jsonrpc.raw(tool.name)}
        headers = call_headers(tool.definition, arguments)
        exchange.on_drop = lambda: self._record(attempt, "cancelled", True)
        exchange.client.forward(exchange, upstream, params, lambda at, reply: self._settle(attempt, at, reply), headers)
        if proxy.foresight.is_ready:
            # Once the request has left: the upstream works meanwhile.
            asyncio.get_running_loop().call_soon(self._look_ahead, exchange, attempt)

    def _look_ahead(self, exchange: Exchange, attempt: _Attempt) -> None:
        """Predict what follows this call, and have the list grow for it."""
        foresight, session, client = self._proxy.foresight, attempt.session, exchange.client
        chat = exchange.chat or session.conversation()
        said = foresight.next(chat)
        attempt.grew = foresight.grow_for(client, session, said)
        attempt.hint = foresight.hint(client, session, chat, said)

    def _settle(self, attempt: _Attempt, exchange: Exchange, reply: Reply) -> None:
        if isinstance(reply, Lost):
            self._record(attempt, "lost", reply.sent)
            text = self._proxy.config.redact(lost_text(attempt.tool.upstream, reply, f"{attempt.tool.name!r}"))
            exchange.own_result({"content": [{"type": "text", "text": text}], "isError": True})
            return
        if reply.error is not UNSET:
            self._record(attempt, "error", True)
        else:
            assert isinstance(reply.result, Raw)
            failed = translate.is_tool_error(reply.result)
            self._record(attempt, "tool_error" if failed else "ok", True)
            if self._proxy.keeps_text:
                self._proxy.flows.answered((attempt.session.record.key, attempt.handle), attempt.tool.id, reply.result)
            if attempt.hint is not None and not failed:
                tell = with_text if attempt.via == "bridge" else with_meta
                reply = replace(reply, result=tell(reply.result, attempt.hint))
        client = exchange.client
        if attempt.grew and client.is_told:
            client.hold(lambda: client.settle(exchange, attempt.upstream, reply))
        else:
            client.settle(exchange, attempt.upstream, reply)

    def _record(self, attempt: _Attempt, outcome: Outcome, sent: bool) -> None:
        took = (time.perf_counter() - attempt.started) * 1000
        self._proxy.recorder.call(
            Call(
                session=attempt.session.record.key,
                at=attempt.at,
                tool=attempt.tool.id,
                upstream=attempt.tool.upstream,
                via=attempt.via,
                hidden=attempt.forward.hidden,
                outcome=outcome,
                took_ms=took,
                sent=sent,
                arguments=attempt.shape,
                discovery=attempt.forward.discovery,
                handle=attempt.handle,
            ),
            attempt.misses,
        )


def _has_accepted(answer: Message) -> bool:
    try:
        return answer.result is not UNSET and jsonrpc.text(jsonrpc.fields(answer.result).get("action")) == "accept"
    except ValueError:
        return False


def _session(exchange: Exchange) -> Session:
    assert exchange.session is not None
    return exchange.session


def _annotation(tool: Tool, name: str) -> Any:
    annotations = jsonrpc.fields(tool.definition).get("annotations")
    value = jsonrpc.plain(annotations) if annotations is not None else None
    return value.get(name) if isinstance(value, dict) else None


def _is_destructive(tool: Tool) -> bool:
    """Only a tool that says so itself; the protocol's default would make most tools so."""
    return _annotation(tool, "destructiveHint") is True
