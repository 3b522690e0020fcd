"""A client for the suites' client scenarios that reaches their server through the proxy.

    python through.py URL

The suite says in the environment which revision to speak and, for some scenarios, which calls to make. The client does
the same for each: it lists all there is, then calls, reads and gets every one of it, and answers what it is asked with
the defaults of the form.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from served import Json, Served, write_config

OWN: Final = {"discover_tools", "call_tool", "call_tool_write"}
SAMPLES: Final[Json] = {"string": "text", "number": 2, "integer": 2, "boolean": True, "array": [], "object": {}}


def sample(schema: Json) -> Json:
    """Arguments that a schema asks for."""
    wanted = {name: schema["properties"][name] for name in schema.get("required", ())}
    return {name: form.get("default", SAMPLES.get(form.get("type", ""), None)) for name, form in wanted.items()}


def answer(method: str, params: Json) -> Json:
    if method == "roots/list":
        return {"roots": []}
    if method == "sampling/createMessage":
        return {"role": "assistant", "model": "none", "content": {"type": "text", "text": "text"}}
    form = params.get("requestedSchema", {})
    defaults = {name: each["default"] for name, each in form.get("properties", {}).items() if "default" in each}
    return {"action": "accept", "content": sample(form) | defaults}


class Through:
    """The client's side of `foretool serve`."""

    def __init__(self, served: Served, version: str) -> None:
        self._served = served
        self._meta: Json = {}
        capabilities = {"elicitation": {}, "sampling": {}, "roots": {}}
        info = {"name": "through", "version": "1"}
        if version < "2026":
            served.ask("initialize", {"protocolVersion": version, "capabilities": capabilities, "clientInfo": info})
            served.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        else:
            space = "io.modelcontextprotocol"
            self._meta = {
                f"{space}/protocolVersion": version,
                f"{space}/clientInfo": info,
                f"{space}/clientCapabilities": capabilities,
            }

    def post(self, method: str, params: Json) -> int:
        return self._served.post(method, {**params, "_meta": self._meta} if self._meta else params)

    def result(self, id: int) -> Json:
        """The result of a request, {} for an error; questions on the way are answered."""
        while True:
            found = next((each for each in self._served.seen if each.get("id") == id and "method" not in each), None)
            if found is not None:
                return dict(found.get("result", {}))
            message = self._served.next()
            if "method" in message and "id" in message:
                result = answer(message["method"], message.get("params", {}))
                self._served.write({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def ask(self, method: str, params: Json) -> Json:
        """The result after as many rounds of input as it takes."""
        return self.finish(method, params, self.result(self.post(method, params)))

    def finish(self, method: str, params: Json, result: Json) -> Json:
        while result.get("resultType") == "input_required":
            asked = result.get("inputRequests", {})
            answers = {key: answer(each["method"], each.get("params", {})) for key, each in asked.items()}
            state = {"requestState": result["requestState"]} if "requestState" in result else {}
            result = self.result(self.post(method, {**params, "inputResponses": answers, **state}))
        return result

    def use_everything(self, calls: list[Json]) -> None:
        tools = [tool for tool in self.ask("tools/list", {})["tools"] if tool["name"] not in OWN]
        schemas = [tool["inputSchema"] for tool in tools]
        if any(tool["name"] == "json_schema_echo" for tool in tools):
            calls = [{"name": "json_schema_echo", "arguments": {"schema": each}} for each in schemas[:1]]
        wanted = calls or [{"name": tool["name"], "arguments": sample(tool["inputSchema"])} for tool in tools]
        posted = [(call, self.post("tools/call", call)) for call in wanted]
        results = [(call, self.result(id)) for call, id in posted]
        for call, result in results:
            self.finish("tools/call", call, result)
        for resource in self.ask("resources/list", {}).get("resources", ()):
            self.ask("resources/read", {"uri": resource["uri"]})
        for prompt in self.ask("prompts/list", {}).get("prompts", ()):
            given = {each["name"]: "text" for each in prompt.get("arguments", ())}
            self.ask("prompts/get", {"name": prompt["name"], "arguments": given})


def main() -> None:
    context: Any = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with tempfile.TemporaryDirectory() as folder:
        server = {"url": sys.argv[-1], "prefix": ""}
        served = Served(write_config(Path(folder), {"suite": server}, policy="full"))
        try:
            version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25")
            Through(served, version).use_everything(context.get("toolCalls", []))
        finally:
            served.leave()


if __name__ == "__main__":
    main()
