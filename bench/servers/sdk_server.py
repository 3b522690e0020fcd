"""An upstream on the `mcp` SDK with one tool: `python -m bench.servers.sdk_server [--http PORT]`, default: stdio."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import mcp_types as t
import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server

from bench.options import make_parser

TOOL = t.Tool(
    name="echo",
    description="Echoes text.",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}},
)

KEEP_ALIVE_S = 120


async def listed(ctx: Any, params: Any) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[TOOL], ttl_ms=0, cache_scope="private")


async def called(ctx: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(type="text", text=json.dumps(params.arguments))])


async def on_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def over_http(server: Server[Any], port: int) -> uvicorn.Config:
    """Serve as the SDK does, but with a quieter log, and with connections that last while others are measured."""
    app = server.streamable_http_app()
    return uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", timeout_keep_alive=KEEP_ALIVE_S)


def main() -> None:
    """Run the server."""
    parser = make_parser("bench.servers.sdk_server", __doc__)
    parser.add_argument("--http", type=int, metavar="PORT")
    arguments = parser.parse_args()
    server: Server[Any] = Server("echo", on_list_tools=listed, on_call_tool=called)
    if arguments.http:
        uvicorn.Server(over_http(server, arguments.http)).run()
    else:
        asyncio.run(on_stdio(server))


if __name__ == "__main__":
    main()
