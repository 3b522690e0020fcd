"""A client for the suites' client scenarios that reaches their server through the proxy.

    python through.py PYTHON URL

The suite says in the environment which revision to speak and, for some scenarios, which calls to make. The client does
the same for each: it lists all there is, then calls, reads and gets every one of it, and answers what it is asked with
the defaults of the form. PYTHON starts foretool. A suite starts its clients at once: a few work at a time.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import httpx2

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


METADATA_DOCUMENT: Final = "https://conformance-test.local/client-metadata.json"
"""Where the suite says that the client's metadata document is."""
AT_ONCE: Final = 4
COLD_LIST_S: Final = 60.0
"""How long a list waits for the suite's server."""
SIGN_INS: Final = 3
"""How often the user signs in before they give up."""


def oauth_of(context: Json) -> Json:
    """What the suite says of the client, as a server's `oauth`."""
    known = {key: context[key] for key in ("client_id", "client_secret") if context.get(key)}
    return known or {"client_metadata_url": METADATA_DOCUMENT}


def sign_in(config: Path) -> bool:
    """Do what a user does: run `foretool login`, and open its link. The suite's pages agree at once."""
    command = [sys.argv[1], "-P", "-m", "foretool", "login", "suite", "--config", str(config)]
    process = subprocess.Popen(
        [*command, "--no-browser", "--json-lines"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["event"] == "link":
            httpx2.get(event["url"], follow_redirects=True)
    return process.wait() == 0


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

    def use_with_sign_ins(self, config: Path) -> None:
        """Use everything, and sign in whenever the proxy asks for it, a few times."""
        for _ in range(SIGN_INS):
            if self._is_allowed():
                return
            if not sign_in(config):
                sys.exit(1)
            end = time.monotonic() + 3
            while time.monotonic() < end and not self._own_tools():
                time.sleep(0.1)
        self._is_allowed()

    def _own_tools(self) -> list[Json]:
        return [tool for tool in self.ask("tools/list", {})["tools"] if tool["name"] not in OWN]

    def _is_allowed(self) -> bool:
        """Call every tool. Returns whether there were some, and none of them wants the user to sign in."""
        tools = self._own_tools()
        calls = [{"name": tool["name"], "arguments": sample(tool["inputSchema"])} for tool in tools]
        said = json.dumps([self.ask("tools/call", call) for call in calls])
        return bool(tools) and "foretool login" not in said

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
    turn = Path(sys.argv[1]).with_name(f"turn-{os.getpid() % AT_ONCE}").open("w")
    fcntl.flock(turn, fcntl.LOCK_EX)  # until this process ends
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"FORETOOL_SIGN_INS": f"{folder}/sign-ins", "FORETOOL_KEYRING": "off"}
        server: Json = {"url": sys.argv[2], "prefix": ""}
        scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
        if scenario.startswith("auth/"):
            server["oauth"] = oauth_of(context)
        settings = {"policy": "full", "list_whole": True, "list_fill": True, "cold_list_s": COLD_LIST_S}
        config = write_config(Path(folder), {"suite": server}, **settings)
        served = Served(config, python=sys.argv[1])
        try:
            version = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "2025-11-25")
            through = Through(served, version)
            if scenario.startswith("auth/"):
                through.use_with_sign_ins(config)
            else:
                through.use_everything(context.get("toolCalls", []))
        finally:
            served.leave()


if __name__ == "__main__":
    main()
