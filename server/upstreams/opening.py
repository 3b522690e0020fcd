"""Opens the transport to a configured server."""

from __future__ import annotations

from foretool.server.config.loader import Config
from foretool.server.config.servers import Server
from foretool.server.transports.pipes import Turn
from foretool.server.transports.upstream.base import Link, Receiver
from foretool.server.transports.upstream.stdio import ChildWatcher, open_stdio
from foretool.server.upstreams.upstream import OpenLink
from foretool.storage.records import Era


def message_limit(config: Config) -> int:
    """Return the bytes that one message may have, from either side."""
    return int(config.settings.max_message_mib * 1024 * 1024)


def link_opener(server: Server, limit: int, watcher: ChildWatcher, turn: Turn | None = None) -> OpenLink:
    """Return what opens the link to a server. `limit`: bytes of one message. `turn`: shared by all pipes of a proxy."""

    async def open_link(receiver: Receiver, era: Era) -> Link:
        if server.type == "stdio":
            return await open_stdio(server.command, server.args, server.env, server.cwd, receiver, watcher, limit, turn)
        # The HTTP client takes a tenth of a second to import; only who has such an upstream waits for it.
        if server.type == "sse":
            from foretool.server.transports.upstream.sse import open_sse

            return await open_sse(server.url, server.headers, receiver, limit)
        from foretool.server.transports.upstream.http import open_http

        return await open_http(server.url, server.headers, era, receiver, limit, fall_back=server.entry.type is None)

    return open_link
