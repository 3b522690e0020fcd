"""Reads requests in the four APIs that agents send to a model, and writes the answers as those APIs stream them.

A `Dialect` turns a request into a `Request`, and an answer (one tool call, or text) into the bytes of a reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]
Event = tuple[str, Json]

_FUNCTION = re.compile(r"<function>(\{.*\})</function>")
"""A definition in the result of an agent's own search for tools."""

USAGE = {"input_tokens": 1, "output_tokens": 1}


@dataclass(frozen=True, slots=True)
class Use:
    """A tool that the model calls."""

    name: str
    arguments: Json
    namespace: str = ""
    """The group that the tool stands in, where the API has groups."""


Answer = Use | str


@dataclass(frozen=True, slots=True)
class Request:
    """What one request put before the model."""

    tools: dict[str, Json] = field(default_factory=dict)
    """Definitions that the model can call, by name."""
    deferred: frozenset[str] = frozenset()
    """Those that the model sees only after a search of the agent's own."""
    namespaces: dict[str, str] = field(default_factory=dict)
    """The group of each tool that stands in one."""
    results: tuple[str, ...] = ()
    """The results of tools, the oldest first, as text."""
    said: str = ""
    """Everything else, as text."""


class Dialect(Protocol):
    """One API."""

    content_type: str

    def read(self, request: Json) -> Request: ...

    def reply(self, model: str, answer: Answer, serial: int, *, streams: bool) -> bytes: ...


def text_of(value: Any) -> str:
    """The text of a value: texts inside it joined, so that JSON within is not escaped once more."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(f"{key}: {text_of(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "\n".join(map(text_of, value))
    return json.dumps(value)


def _lines(events: Iterable[Event], *, named: bool = True) -> bytes:
    return "".join(
        (f"event: {name}\n" if named else "") + f"data: {json.dumps(data)}\n\n" for name, data in events
    ).encode()


class Messages:
    """Anthropic's Messages API."""

    content_type = "text/event-stream"

    def read(self, request: Json) -> Request:
        tools = {tool["name"]: tool for tool in request.get("tools", ())}
        blocks = [block for message in request["messages"] for block in _blocks(message["content"])]
        results = tuple(text_of(block.get("content")) for block in blocks if block["type"] == "tool_result")
        own = [block for block in blocks if block["type"] not in ("tool_use", "tool_result")]
        deferred = frozenset(name for name, tool in tools.items() if tool.get("defer_loading"))
        return Request(tools, deferred, {}, results, text_of([own, request.get("system", "")]))

    def reply(self, model: str, answer: Answer, serial: int, *, streams: bool) -> bytes:
        is_text = isinstance(answer, str)
        block: Json = {"type": "text", "text": answer}
        if isinstance(answer, Use):
            block = {"type": "tool_use", "id": f"toolu_{serial}", "name": answer.name, "input": answer.arguments}
        head = {"id": f"msg_{serial}", "type": "message", "role": "assistant", "model": model, "usage": USAGE}
        reason = "end_turn" if is_text else "tool_use"
        if not streams:
            return json.dumps({**head, "content": [block], "stop_reason": reason, "stop_sequence": None}).encode()
        return _lines((name, {"type": name, **data}) for name, data in _message_events(head, block, reason))


def _blocks(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _message_events(head: Json, block: Json, reason: str) -> Iterator[Event]:
    is_text = block["type"] == "text"
    begun = {**block, "text": ""} if is_text else {**block, "input": {}}
    text = block["text"] if is_text else json.dumps(block["input"])
    part = {"type": "text_delta", "text": text} if is_text else {"type": "input_json_delta", "partial_json": text}
    yield "message_start", {"message": {**head, "content": [], "stop_reason": None, "stop_sequence": None}}
    yield "content_block_start", {"index": 0, "content_block": begun}
    yield "content_block_delta", {"index": 0, "delta": part}
    yield "content_block_stop", {"index": 0}
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 1}}
    yield "message_stop", {}


class Chat:
    """OpenAI's chat completions."""

    content_type = "text/event-stream"

    def read(self, request: Json) -> Request:
        tools = {tool["function"]["name"]: tool["function"] for tool in request.get("tools") or ()}
        results = tuple(text_of(each.get("content")) for each in request["messages"] if each["role"] == "tool")
        own = [each.get("content") or "" for each in request["messages"] if each["role"] in ("system", "user")]
        found = {tool["name"]: tool for each in results for tool in map(json.loads, _FUNCTION.findall(each))}
        return Request(found | tools, frozenset(found.keys() - tools.keys()), {}, results, text_of(own))

    def reply(self, model: str, answer: Answer, serial: int, *, streams: bool) -> bytes:
        message: Json = {"role": "assistant", "content": answer}
        reason = "stop"
        if isinstance(answer, Use):
            function = {"name": answer.name, "arguments": json.dumps(answer.arguments)}
            call = {"index": 0, "id": f"call_{serial}", "type": "function", "function": function}
            message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        head = {"id": f"chatcmpl-{serial}", "created": 1, "model": model}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not streams:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        head["object"] = "chat.completion.chunk"
        parts = [
            {**head, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
            {**head, "choices": [], "usage": usage},
        ]
        return _lines((("", part) for part in parts), named=False) + b"data: [DONE]\n\n"


class Responses:
    """OpenAI's responses."""

    content_type = "text/event-stream"

    def read(self, request: Json) -> Request:
        tools: dict[str, Json] = {}
        namespaces: dict[str, str] = {}
        given = [*(request.get("tools") or ()), *_found_by_search(request["input"])]
        for tool in given:
            if tool.get("type") == "namespace":
                for each in tool.get("tools", ()):
                    tools[each["name"]] = each
                    namespaces[each["name"]] = tool["name"]
            elif "name" in tool:
                tools[tool["name"]] = tool
        deferred = frozenset(name for name, tool in tools.items() if tool.get("defer_loading"))
        items = (
            request["input"]
            if isinstance(request["input"], list)
            else [{"type": "message", "content": request["input"]}]
        )
        results = tuple(text_of(item.get("output")) for item in items if item.get("type", "").endswith("_call_output"))
        own = [
            item.get("content") for item in items if item.get("type") == "message" and item.get("role") != "assistant"
        ]
        return Request(tools, deferred, namespaces, results, text_of([own, request.get("instructions", "")]))

    def reply(self, model: str, answer: Answer, serial: int, *, streams: bool) -> bytes:
        item: Json = {
            "type": "message", "id": f"msg_{serial}", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": answer, "annotations": []}],
        }  # fmt: skip
        if isinstance(answer, Use):
            item = {
                "type": "function_call", "id": f"fc_{serial}", "call_id": f"call_{serial}", "name": answer.name,
                "arguments": json.dumps(answer.arguments), "status": "completed",
            }  # fmt: skip
            if answer.namespace:
                item["namespace"] = answer.namespace
        usage = {**USAGE, "total_tokens": 2}
        whole = {"id": f"resp_{serial}", "object": "response", "created_at": 1, "model": model, "usage": usage}
        done = {**whole, "status": "completed", "output": [item]}
        if not streams:
            return json.dumps(done).encode()
        events: list[tuple[str, Json]] = [
            ("response.created", {"response": {**whole, "status": "in_progress", "output": []}}),
            ("response.output_item.added", {"output_index": 0, "item": item}),
            ("response.output_item.done", {"output_index": 0, "item": item}),
            ("response.completed", {"response": done}),
        ]
        return _lines((name, {"type": name, "sequence_number": at, **data}) for at, (name, data) in enumerate(events))


def _found_by_search(items: str | list[Json]) -> list[Json]:
    """Tools that the agent's own search gave to the model in the course of the conversation."""
    if isinstance(items, str):
        return []
    return [tool for item in items if item.get("type") == "tool_search_output" for tool in item.get("tools") or ()]


class Gemini:
    """Google's generateContent."""

    content_type = "text/event-stream"

    def read(self, request: Json) -> Request:
        declared = [each for tool in request.get("tools") or () for each in tool.get("functionDeclarations", ())]
        parts = [part for each in request["contents"] for part in each.get("parts", ())]
        results = tuple(text_of(part["functionResponse"]) for part in parts if "functionResponse" in part)
        own = [part["text"] for part in parts if "text" in part]
        said = text_of([own, request.get("systemInstruction", "")])
        return Request({tool["name"]: tool for tool in declared}, frozenset(), {}, results, said)

    def reply(self, model: str, answer: Answer, serial: int, *, streams: bool) -> bytes:
        part: Json = {"text": answer}
        if isinstance(answer, Use):
            part = {"functionCall": {"id": f"call_{serial}", "name": answer.name, "args": answer.arguments}}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        whole = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model, "responseId": str(serial)}
        return _lines([("", whole)], named=False) if streams else json.dumps(whole).encode()


def dialect_of(path: str) -> Dialect | None:
    """The API that a request's path belongs to; None for anything beside the conversation."""
    bare = path.partition("?")[0]
    endings: Sequence[tuple[str, Dialect]] = (
        ("/messages", Messages()), ("/chat/completions", Chat()), ("/responses", Responses()),
        (":generateContent", Gemini()), (":streamGenerateContent", Gemini()),
    )  # fmt: skip
    return next((dialect for ending, dialect in endings if bare.endswith(ending)), None)
