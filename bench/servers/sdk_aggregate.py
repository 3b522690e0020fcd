"""The plainest aggregate on the `mcp` SDK: `python -m bench.servers.sdk_aggregate PORT NAME COMMAND ...`.

An SDK client holds one upstream on stdio open as long as the process lives. An SDK server serves its tools under
`NAME__` on streamable HTTP. Typed results pass through as they are. `bench/proxy/http_calls.py` compares foretool with
this server.
"""

from __future__ import annotations

import sys
from typing import Any

import mcp_types as t
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server import Server

from bench.servers.sdk_server import over_http


async def serve(port: int, name: str, command: list[str]) -> None:
    """Serve until the process ends."""
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    async with Client(stdio_client(parameters), cache=None) as upstream:

        async def listed(ctx: Any, params: Any) -> t.ListToolsResult:
            found = await upstream.list_tools()
            tools = [tool.model_copy(update={"name": f"{name}__{tool.name}"}) for tool in found.tools]
            return t.ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")

        async def called(ctx: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
            return await upstream.call_tool(params.name.removeprefix(f"{name}__"), params.arguments)

        # The client checks results against the tool's output schema, which it reads from a list.
        await upstream.list_tools()
        server: Server[Any] = Server("aggregate", on_list_tools=listed, on_call_tool=called)
        await uvicorn.Server(over_http(server, port)).serve()


def main() -> None:
    """Run the aggregate."""
    import anyio

    anyio.run(serve, int(sys.argv[1]), sys.argv[2], sys.argv[3:])


if __name__ == "__main__":
    main()
