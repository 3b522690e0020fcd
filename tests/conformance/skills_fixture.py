"""A server with skills, over HTTP on a free port; the first line it prints is its URL. It speaks both eras."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from typing import Any, Final

import mcp_types as types
import uvicorn
from fixture import Announcing, complete_result
from mcp.server import Server
from mcp.shared.exceptions import MCPError

Json = dict[str, Any]

MAIN: Final = """---
name: refunds
description: How to refund an order, and whom to ask before a large one.
license: Apache-2.0
---

# Refunds

Look the order up first, then write the mail as `templates/mail.md` shows.
"""
FILES: Final = {
    "skill://shop/refunds/SKILL.md": MAIN,
    "skill://shop/refunds/templates/mail.md": "Dear customer, ...\n",
    "skill://shop/refunds/templates/regional/eu.md": "Sehr geehrte ...\n",
    "skill://stocktaking/SKILL.md": "---\nname: stocktaking\ndescription: How to count a shelf.\n---\nCount twice.\n",
}
CHUNK: Final = 1
"""Skills of one page."""


def entry(uri: str) -> Json:
    root = uri.removesuffix("SKILL.md")
    lines = FILES[uri].split("---\n")[1].splitlines()
    files = [
        {"uri": each, "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", "size": len(text.encode())}
        for each, text in FILES.items()
        if each.startswith(root)
    ]
    return {"uri": uri, "frontmatter": dict(line.split(": ", 1) for line in lines), "resources": files}


MAINS: Final = [uri for uri in FILES if uri.endswith("/SKILL.md")]


async def list_skills(ctx: Any, params: Any) -> Json:
    start = int(params.cursor or 0)
    more = {"nextCursor": str(start + CHUNK)} if start + CHUNK < len(MAINS) else {}
    return {"skills": [entry(uri) for uri in MAINS[start : start + CHUNK]], **more}


async def get_skill(ctx: Any, params: Any) -> Json:
    if str(params.uri) not in MAINS:
        raise MCPError(types.INVALID_PARAMS, f"No skill is served at {params.uri}")
    return {"skill": entry(str(params.uri))}


async def read_folder(ctx: Any, params: Any) -> Json:
    root = f"{params.uri}/"
    names = list(dict.fromkeys(uri[len(root) :].partition("/")[:2] for uri in FILES if uri.startswith(root)))
    if not names:
        raise MCPError(types.INVALID_PARAMS, f"{params.uri} is no directory")
    kinds = {"": "text/markdown", "/": "inode/directory"}
    return {"resources": [{"uri": root + name, "name": name, "mimeType": kinds[deeper]} for name, deeper in names]}


async def list_resources(ctx: Any, params: Any) -> Json:
    named = {uri: entry(uri)["frontmatter"] for uri in MAINS}
    return {
        "resources": [
            {"uri": uri, "name": uri.rpartition("/")[2], "mimeType": "text/markdown"}
            | ({key: named[uri][key] for key in ("name", "description")} if uri in named else {})
            for uri in FILES
        ]
    }


async def read_resource(ctx: Any, params: Any) -> Json:
    if str(params.uri) not in FILES:
        raise MCPError(types.INVALID_PARAMS, f"Resource not found: {params.uri}")
    return {"contents": [{"uri": str(params.uri), "mimeType": "text/markdown", "text": FILES[str(params.uri)]}]}


class WithSkills(Announcing):
    def get_capabilities(self, *arguments: Any, **options: Any) -> Any:
        found = super().get_capabilities(*arguments, **options)
        return found.model_copy(update={"extensions": {"io.modelcontextprotocol/skills": {"directoryRead": True}}})


def build() -> Server[Any]:
    server = WithSkills("skills-fixture", version="1.0.0")
    handlers: dict[str, tuple[Any, Any]] = {
        "resources/list": (types.PaginatedRequestParams, list_resources),
        "resources/read": (types.ReadResourceRequestParams, read_resource),
        "skills/list": (types.PaginatedRequestParams, list_skills),
        "skills/get": (types.ReadResourceRequestParams, get_skill),
        "resources/directory/read": (types.ReadResourceRequestParams, read_folder),
    }
    for method, (kind, handler) in handlers.items():
        server.add_request_handler(method, kind, complete_result(handler))
    return server


async def main() -> None:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(build().streamable_http_app(), log_level="warning", ws="none")
    await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    asyncio.run(main())
