"""A server with the tools, prompts and resources that the conformance suites ask for by name.

    python fixture.py               on stdio
    python fixture.py --http        over HTTP on a free port; the first line it prints is its URL
    python fixture.py --http --legacy    the same, without the modern era

The suites say what each one does: `conformance list`, and the description of each scenario.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import json
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Final

import mcp_types as types
import tasks_fixture
import uvicorn
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, PromptsListChanged, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

Json = dict[str, Any]
Context = ServerRequestContext[Any, Any]
CACHEABLE: Final = {
    "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read", "skills/list",
    "skills/get",
}  # fmt: skip
Tool = Callable[[Context], Awaitable[Json]]

PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
WAV: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
STEP_S: Final = 0.02
POLLED_S: Final = 0.2
"""How long a tool that sent its client away waits for it to come back."""

NAME_FORM: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NO_ARGUMENTS: Final = {"type": "object", "properties": {}}
DEFAULTS_FORM: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
}
CHOICES: Final = [{"const": "a", "title": "First"}, {"const": "b", "title": "Second"}, {"const": "c", "title": "Third"}]
ENUMS_FORM: Final = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["a", "b", "c"]},
        "titledSingle": {"type": "string", "oneOf": CHOICES},
        "legacyEnum": {"type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": CHOICES}},
    },
}
SCHEMA_2020: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


class Events(EventStore):
    """What was said on each stream, for clients that come back to one."""

    def __init__(self) -> None:
        self._said: list[tuple[str, types.JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: types.JSONRPCMessage | None) -> str:
        self._said.append((stream_id, message))
        return str(len(self._said))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        if not 0 < last <= len(self._said):
            return None
        stream = self._said[last - 1][0]
        for number, (of, message) in enumerate(self._said[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


class Announcing(Server[Any]):
    """Says in the handshake that its lists change; over HTTP the SDK has no other way to."""

    def create_initialization_options(self, *_: Any, **more: Any) -> Any:
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return super().create_initialization_options(changes, **more)


bus = InMemorySubscriptionBus()
extra: dict[str, set[str]] = {"tools": set(), "prompts": set()}
"""Tools and prompts that come and go."""
KEY: Final = secrets.token_bytes(32)


# Results


def text(*lines: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": line} for line in lines], **more}


def image() -> Json:
    return {"type": "image", "data": PNG, "mimeType": "image/png"}


def embedded(uri: str, kind: str, value: str) -> Json:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": value}}


def elicitation(message: str, form: Json) -> Json:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": form}}


def sampling(prompt: str, tokens: int) -> Json:
    message = {"role": "user", "content": {"type": "text", "text": prompt}}
    return {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": tokens}}


def wanted(requests: Json, state: str | None = None) -> Json:
    """A result that asks for input."""
    asked: Json = {"resultType": "input_required", "inputRequests": requests}
    return asked if state is None else {**asked, "requestState": state}


def sealed(value: str) -> str:
    return f"{value}.{hmac.new(KEY, value.encode(), hashlib.sha256).hexdigest()}"


def unsealed(state: str) -> str:
    """Raises `MCPError` when the state is not as we gave it away."""
    value = state.rpartition(".")[0]
    if not hmac.compare_digest(state, sealed(value)):
        raise MCPError(types.INVALID_PARAMS, "requestState was changed on the way")
    return value


# Tools


def params_of(ctx: Context) -> Json:
    return dict(ctx.params or {})


def answers(ctx: Context) -> Json:
    given = params_of(ctx).get("inputResponses")
    return given if isinstance(given, dict) else {}


def content(ctx: Context, key: str) -> Json:
    """What a form was filled in with, {} if it was not."""
    answer = answers(ctx).get(key)
    found = answer.get("content") if isinstance(answer, dict) and answer.get("action") == "accept" else None
    return found if isinstance(found, dict) else {}


def declared(ctx: Context, capability: str) -> bool:
    known = ctx.session.client_capabilities
    return known is not None and getattr(known, capability) is not None


async def ask(ctx: Context, request: Any, result: Any) -> Any:
    """Ask the client in the course of its request."""
    related = ServerMessageMetadata(related_request_id=ctx.request_id)
    return await ctx.session.send_request(request, result, metadata=related)


async def say(ctx: Context, line: str) -> None:
    await ctx.session.send_log_message("info", line, related_request_id=ctx.request_id)


def saying(*lines: str) -> Tool:
    async def tool(ctx: Context) -> Json:
        return text(*lines)

    return tool


def giving(*blocks: Json) -> Tool:
    async def tool(ctx: Context) -> Json:
        return {"content": list(blocks)}

    return tool


async def fails(ctx: Context) -> Json:
    return text("This tool intentionally returns an error for testing", isError=True)


async def logs(ctx: Context) -> Json:
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await say(ctx, line)
        await asyncio.sleep(STEP_S)
    return text("done, and said so")


async def progresses(ctx: Context) -> Json:
    for step in (0, 50, 100):
        await ctx.session.report_progress(step, 100, f"{step} of 100")
        await asyncio.sleep(STEP_S)
    return text("done")


async def samples(ctx: Context) -> Json:
    prompt = params_of(ctx)["arguments"]["prompt"]
    request = types.CreateMessageRequest.model_validate(sampling(prompt, 100))
    try:
        answer = await ask(ctx, request, types.CreateMessageResult)
    except MCPError as error:
        return text(f"cannot sample: {error}", isError=True)
    return text(f"LLM response: {answer.content.text}")


def elicits(form: Json, message: str = "") -> Tool:
    async def tool(ctx: Context) -> Json:
        wording = message or params_of(ctx)["arguments"]["message"]
        request = types.ElicitRequest.model_validate(elicitation(wording, form))
        try:
            answer = await ask(ctx, request, types.ElicitResult)
        except MCPError as error:
            return text(f"cannot ask: {error}", isError=True)
        return text(f"User response: action={answer.action}, content={json.dumps(answer.content or {})}")

    return tool


async def region(ctx: Context) -> Json:
    return text(f"region={(params_of(ctx).get('arguments') or {}).get('region')}")


async def greets_by_name(ctx: Context) -> Json:
    return text(f"Hello, {(params_of(ctx).get('arguments') or {}).get('name')}!")


async def needs_sampling(ctx: Context) -> Json:
    if not declared(ctx, "sampling"):
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs sampling", data)
    return text("sampling was declared")


async def greets(ctx: Context) -> Json:
    name = content(ctx, "user_name").get("name")
    if not isinstance(name, str):
        return wanted({"user_name": elicitation("What is your name?", NAME_FORM)})
    return text(f"Hello, {name}!")


async def asks_the_model(ctx: Context) -> Json:
    answer = answers(ctx).get("capital_question")
    if answer is None:
        return wanted({"capital_question": sampling("What is the capital of France?", 100)})
    return text(f"The model said: {answer['content']['text']}")


async def counts_roots(ctx: Context) -> Json:
    answer = answers(ctx).get("client_roots")
    if answer is None:
        return wanted({"client_roots": {"method": "roots/list", "params": {}}})
    return text(f"{len(answer['roots'])} roots: {', '.join(root['uri'] for root in answer['roots'])}")


async def keeps_state(ctx: Context) -> Json:
    state = params_of(ctx).get("requestState")
    if "confirm" in answers(ctx) and isinstance(state, str) and unsealed(state) == "confirming":
        return text("state-ok: it came back as it was")
    form = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    return wanted({"confirm": elicitation("Please confirm", form)}, sealed("confirming"))


async def guards_state(ctx: Context) -> Json:
    state = params_of(ctx).get("requestState")
    if isinstance(state, str):
        return text(f"state-ok: {unsealed(state)}")
    return await keeps_state(ctx)


async def asks_much(ctx: Context) -> Json:
    if {"user_name", "greeting", "client_roots"} <= answers(ctx).keys():
        unsealed(str(params_of(ctx).get("requestState")))
        return text("all three came")
    requests = {
        "user_name": elicitation("What is your name?", NAME_FORM),
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": {"method": "roots/list", "params": {}},
    }
    return wanted(requests, sealed("three"))


async def asks_twice(ctx: Context) -> Json:
    state = params_of(ctx).get("requestState")
    known = json.loads(unsealed(state)) if isinstance(state, str) else {}
    if "name" in known and "step2" in answers(ctx):
        return text(f"{known['name']} likes {content(ctx, 'step2').get('color')}")
    if known and "step1" in answers(ctx):
        form = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
        kept = json.dumps({"round": 2, "name": content(ctx, "step1").get("name")})
        return wanted({"step2": elicitation("Step 2: What is your favorite color?", form)}, sealed(kept))
    first = {"step1": elicitation("Step 1: What is your name?", NAME_FORM)}
    return wanted(first, sealed(json.dumps({"round": 1})))


async def asks_what_it_may(ctx: Context) -> Json:
    requests = {}
    if declared(ctx, "sampling"):
        requests["sample"] = sampling("Say hello", 50)
    if declared(ctx, "elicitation"):
        requests["ask"] = elicitation("What is your name?", NAME_FORM)
    return wanted(requests, sealed("gated"))


async def streams_then_asks(ctx: Context) -> Json:
    await ctx.session.report_progress(1, 2)
    return await greets(ctx)


async def sends_away(ctx: Context) -> Json:
    await say(ctx, "before")
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await asyncio.sleep(POLLED_S)
    await say(ctx, "after")
    return text("the client came back")


async def waits(ctx: Context) -> Json:
    """Until it is cancelled."""
    await asyncio.Event().wait()
    return text("never")


async def changes_tools(ctx: Context) -> Json:
    extra["tools"] ^= {"test_dynamic_tool"}
    await bus.publish(ToolsListChanged())
    if ctx.session.can_send_request:
        await ctx.session.send_tool_list_changed()
    return text("the tools have changed")


async def changes_prompts(ctx: Context) -> Json:
    extra["prompts"] ^= {"test_dynamic_prompt"}
    await bus.publish(PromptsListChanged())
    if ctx.session.can_send_request:
        await ctx.session.send_prompt_list_changed()
    return text("the prompts have changed")


def schema(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def required(name: str) -> Json:
    return {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}


USER_FORM: Final = {
    "type": "object",
    "properties": {"username": {"type": "string"}, "email": {"type": "string"}},
    "required": ["username", "email"],
}

TOOLS: Final[dict[str, tuple[Tool, Json]]] = {
    "test_simple_text": (saying("This is a simple text response for testing."), NO_ARGUMENTS),
    "test_image_content": (giving(image()), NO_ARGUMENTS),
    "test_audio_content": (giving({"type": "audio", "data": WAV, "mimeType": "audio/wav"}), NO_ARGUMENTS),
    "test_embedded_resource": (
        giving(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")),
        NO_ARGUMENTS,
    ),
    "test_multiple_content_types": (
        giving(
            {"type": "text", "text": "Multiple content types test:"},
            image(),
            embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
        ),
        NO_ARGUMENTS,
    ),
    "test_error_handling": (fails, NO_ARGUMENTS),
    "test_tool_with_logging": (logs, NO_ARGUMENTS),
    "test_logging_tool": (logs, NO_ARGUMENTS),
    "test_tool_with_progress": (progresses, NO_ARGUMENTS),
    "test_sampling": (samples, required("prompt")),
    "test_elicitation": (elicits(USER_FORM), required("message")),
    "test_elicitation_sep1034_defaults": (elicits(DEFAULTS_FORM, "Please fill in"), NO_ARGUMENTS),
    "test_elicitation_sep1330_enums": (elicits(ENUMS_FORM, "Please choose"), NO_ARGUMENTS),
    "test_x_mcp_header": (region, schema(region={"type": "string", "x-mcp-header": "Region"})),
    "test_missing_capability": (needs_sampling, NO_ARGUMENTS),
    "test_input_required_result_elicitation": (greets, NO_ARGUMENTS),
    "test_input_required_result_sampling": (asks_the_model, NO_ARGUMENTS),
    "test_input_required_result_list_roots": (counts_roots, NO_ARGUMENTS),
    "test_input_required_result_request_state": (keeps_state, NO_ARGUMENTS),
    "test_input_required_result_multiple_inputs": (asks_much, NO_ARGUMENTS),
    "test_input_required_result_multi_round": (asks_twice, NO_ARGUMENTS),
    "test_input_required_result_tampered_state": (guards_state, NO_ARGUMENTS),
    "test_input_required_result_capabilities": (asks_what_it_may, NO_ARGUMENTS),
    "test_streaming_elicitation": (streams_then_asks, NO_ARGUMENTS),
    "test_reconnection": (sends_away, NO_ARGUMENTS),
    "test_trigger_tool_change": (changes_tools, NO_ARGUMENTS),
    "test_trigger_prompt_change": (changes_prompts, NO_ARGUMENTS),
    "json_schema_2020_12_tool": (saying("fits"), SCHEMA_2020),
    # For the scenarios of the tasks extension, which may be served without a task.
    "greet": (greets_by_name, schema(name={"type": "string"})),
    "slow_compute": (saying("computed"), schema(seconds={"type": "number"}, label={"type": "string"})),
    "failing_job": (fails, NO_ARGUMENTS),
    "wait_for_ever": (waits, NO_ARGUMENTS),
}


async def list_tools(ctx: Context, params: Any) -> Json:
    known = {name: form for name, (_, form) in TOOLS.items()} | tasks_fixture.FORMS
    known |= dict.fromkeys(extra["tools"], NO_ARGUMENTS)
    return {
        "tools": [
            {"name": name, "description": f"Tool {name} of the suites", "inputSchema": form}
            for name, form in known.items()
        ]
    }


async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> Json:
    if params.name in extra["tools"]:
        return text("dynamic")
    if params.name in tasks_fixture.FORMS:
        return await tasks_fixture.call(params.name, params_of(ctx))
    if params.name not in TOOLS:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
    return await TOOLS[params.name][0](ctx)


# Prompts


def message(block: Json) -> Json:
    return {"role": "user", "content": block}


def line(value: str) -> Json:
    return message({"type": "text", "text": value})


ARGUMENTS: Final = {
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
}
PROMPTS: Final = (
    "test_simple_prompt",
    "test_prompt_with_arguments",
    "test_prompt_with_embedded_resource",
    "test_prompt_with_image",
    "test_input_required_result_prompt",
)


async def list_prompts(ctx: Context, params: Any) -> Json:
    return {
        "prompts": [
            {
                "name": name,
                "description": f"Prompt {name} of the suites",
                "arguments": [{"name": each, "required": True} for each in ARGUMENTS.get(name, ())],
            }
            for name in (*PROMPTS, *sorted(extra["prompts"]))
        ]
    }


async def get_prompt(ctx: Context, params: types.GetPromptRequestParams) -> Json:
    given = params.arguments or {}
    if params.name == "test_simple_prompt":
        messages = [line("This is a simple prompt for testing.")]
    elif params.name == "test_prompt_with_arguments":
        messages = [line(f"Prompt with arguments: arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'")]
    elif params.name == "test_prompt_with_embedded_resource":
        block = embedded(given["resourceUri"], "text/plain", "Embedded resource content for testing.")
        messages = [message(block), line("Please process the embedded resource above.")]
    elif params.name == "test_prompt_with_image":
        messages = [message(image()), line("Please analyze the image above.")]
    elif params.name == "test_input_required_result_prompt":
        form = {"type": "object", "properties": {"context": {"type": "string"}}, "required": ["context"]}
        if "user_context" not in answers(ctx):
            return wanted({"user_context": elicitation("What context should the prompt use?", form)})
        messages = [line(f"Use this context: {content(ctx, 'user_context').get('context')}")]
    else:
        raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {params.name}")
    return {"messages": messages}


async def complete(ctx: Context, params: types.CompleteRequestParams) -> Json:
    values = [word for word in ("paris", "park", "party") if word.startswith(params.argument.value)]
    return {"completion": {"values": values, "total": len(values), "hasMore": False}}


# Resources

STATIC: Final = "This is the content of the static text resource."
RESOURCES: Final[dict[str, Json]] = {
    "test://static-text": {"mimeType": "text/plain", "text": STATIC},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "watched"},
}


async def list_resources(ctx: Context, params: Any) -> Json:
    return {
        "resources": [
            {"uri": uri, "name": uri.rpartition("/")[2], "description": "of the suites", "mimeType": body["mimeType"]}
            for uri, body in RESOURCES.items()
        ]
    }


async def list_templates(ctx: Context, params: Any) -> Json:
    template = {"uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json"}
    return {"resourceTemplates": [template]}


async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> Json:
    uri = str(params.uri)
    body = RESOURCES.get(uri)
    if body is None and uri.startswith("test://template/") and uri.endswith("/data"):
        ident = uri.removeprefix("test://template/").removesuffix("/data")
        value = json.dumps({"id": ident, "templateTest": True, "data": f"Data for ID: {ident}"})
        body = {"mimeType": "application/json", "text": value}
    if body is None:
        raise MCPError(types.INVALID_PARAMS, f"Resource not found: {uri}", {"uri": uri})
    return {"contents": [{"uri": uri, **body}]}


async def nothing(ctx: Context, params: Any) -> Json:
    return {}


def build() -> Announcing:
    schemas = {name: form for name, (_, form) in TOOLS.items()} | tasks_fixture.FORMS
    server = Announcing("conformance-fixture", version="1.0.0", get_tool_input_schema=schemas.get)
    handlers: dict[str, tuple[Any, Any]] = {
        "tools/list": (types.PaginatedRequestParams, list_tools),
        "tools/call": (types.CallToolRequestParams, call_tool),
        "prompts/list": (types.PaginatedRequestParams, list_prompts),
        "prompts/get": (types.GetPromptRequestParams, get_prompt),
        "completion/complete": (types.CompleteRequestParams, complete),
        "resources/list": (types.PaginatedRequestParams, list_resources),
        "resources/templates/list": (types.PaginatedRequestParams, list_templates),
        "resources/read": (types.ReadResourceRequestParams, read_resource),
        "resources/subscribe": (types.SubscribeRequestParams, nothing),
        "resources/unsubscribe": (types.UnsubscribeRequestParams, nothing),
        "logging/setLevel": (types.SetLevelRequestParams, nothing),
        "subscriptions/listen": (types.SubscriptionsListenRequestParams, ListenHandler(bus)),
    }
    for method, (kind, handler) in handlers.items():
        server.add_request_handler(method, kind, complete_result(handler))
    for method, answer in tasks_fixture.METHODS.items():
        server.add_request_handler(method, types.RequestParams, complete_result(answer))
    server.extensions[tasks_fixture.EXTENSION] = {}
    return server


def complete_result(handler: Any) -> Any:
    """The handler, whose results have what the modern era adds to every one."""

    async def handled(ctx: Context, params: Any) -> Any:
        result = await handler(ctx, params)
        if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS or not isinstance(result, dict):
            return result
        hints = {"ttlMs": 0, "cacheScope": "private"} if ctx.method in CACHEABLE else {}
        return {"resultType": "complete", **hints, **result}

    return handled


# Transports


def without_modern(app: Any) -> Any:
    """The application as one that was made before the modern era."""
    refusal = {"code": -32000, "message": "Bad Request: Unsupported protocol version"}
    body = json.dumps({"jsonrpc": "2.0", "id": "server-error", "error": refusal}).encode()

    async def old(scope: Any, receive: Any, send: Any) -> None:
        if dict(scope.get("headers") or ()).get(b"mcp-protocol-version", b"").startswith(b"2026"):
            start = {"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"application/json")]}
            await send(start)
            await send({"type": "http.response.body", "body": body})
        else:
            await app(scope, receive, send)

    return old


async def serve_http(legacy: bool) -> None:
    app: Any = build().streamable_http_app(event_store=Events(), retry_interval=100)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(without_modern(app) if legacy else app, log_level="warning", ws="none")
    await uvicorn.Server(config).serve([listener])


async def serve_stdio() -> None:
    server = build()
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--legacy", action="store_true")
    chosen = parser.parse_args()
    asyncio.run(serve_http(chosen.legacy) if chosen.http else serve_stdio())


if __name__ == "__main__":
    main()
