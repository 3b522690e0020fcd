"""Makes the upstreams of the config, opens their transports, runs them, and ends those that a reload removes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from foretool.server.config.loader import Config
from foretool.server.config.servers import Server
from foretool.server.config.variables import server_environment
from foretool.server.transports.allowance import Allowance
from foretool.server.transports.pipes import Turn
from foretool.server.transports.upstream.base import Authorizer, Link, Receiver
from foretool.server.transports.upstream.stdio import Child, ChildWatcher, open_stdio
from foretool.server.upstreams.lines import OpenLink
from foretool.server.upstreams.memory import UpstreamMemory
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.server_list import ListLimit
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era

if TYPE_CHECKING:
    from foretool.server.signin.bearer import Bearer


def message_limit(config: Config) -> int:
    """Return the bytes that one message may have, from either side."""
    return int(config.settings.max_message_mib * 1024 * 1024)


def list_limit(config: Config) -> ListLimit:
    """Return how much one list of a server may hold."""
    return ListLimit(config.settings.max_tools, int(config.settings.max_tools_mib * 1024 * 1024))


def link_opener(
    server: Server, limit: int, watcher: ChildWatcher, turn: Turn | None = None, authorizer: Authorizer | None = None
) -> OpenLink:
    """Return a function that opens the link to a server. `limit`: bytes of one message. `turn`: shared by all pipes of
    a proxy. `authorizer`: provides the token for a remote server."""
    cert = (server.client_cert, server.client_key) if server.client_cert else None
    allowance = Allowance()

    async def open_link(receiver: Receiver, era: Era) -> Link:
        if server.type == "stdio":
            env = server_environment(os.environ, server.inherit, server.withheld, server.env)
            child = Child(server.command, server.args, env, server.cwd)
            return await open_stdio(child, receiver, watcher, limit, turn, allowance)
        # The HTTP client takes a tenth of a second to import; only who has such an upstream waits for it.
        if server.type == "sse":
            from foretool.server.transports.upstream.sse import open_sse

            return await open_sse(server.url, server.headers, receiver, limit, authorizer, cert, allowance)
        from foretool.server.transports.upstream.http import HttpLink

        return HttpLink(
            server.url, server.headers, era, receiver, limit, fall_back=server.entry.type is None,
            authorizer=authorizer, cert=cert, allowance=allowance,
        )  # fmt: skip

    return open_link


def make_bearer(server: Server, config: Path) -> Bearer | None:
    """Return what provides a server's token; None without one. `config`: the file of its entry."""
    if not server.may_sign_in:
        return None
    # Only who has remote servers waits for these imports.
    from foretool.server.signin.bearer import Bearer
    from foretool.server.signin.vault import Vault
    from foretool.server.signin.worker import sign_in_machine

    is_machine = server.oauth.grant == "client_credentials"
    return Bearer(server, Vault.own(), partial(sign_in_machine, server.name, config) if is_machine else None)


class Launcher:
    """Owns the task of each upstream."""

    def __init__(
        self, upstreams: UpstreamRegistry, memory: UpstreamMemory, make_upstream: Callable[[Server], Upstream]
    ) -> None:
        self._upstreams = upstreams
        self._memory = memory
        self._make_upstream = make_upstream
        self._tasks: asyncio.TaskGroup | None = None

    def load(self, servers: Sequence[Server]) -> None:
        """Make the upstreams of these servers, with what the store remembers of them."""
        known = self._memory.load(servers)
        for server in servers:
            upstream = self._make_upstream(server)
            if (record := known.get(server.name)) is not None:
                upstream.lines.speaks = {era: does for era, does in ((record.era, True), (record.lacks, False)) if era}
            self._upstreams.add(upstream)

    def run(self, tasks: asyncio.TaskGroup) -> None:
        """Run every upstream in a task group, and report the state of those that are not started."""
        self._tasks = tasks
        for upstream in self._upstreams:
            tasks.create_task(upstream.run())
            self._memory.save_state(upstream)

    def add(self, servers: Sequence[Server], era: Era | None) -> None:
        """Make and run the upstreams of added servers; start them in `era` if a client is there."""
        self.load(servers)
        for server in servers:
            upstream = self._upstreams[server.name]
            if self._tasks is not None:
                self._tasks.create_task(upstream.run())
            if era is not None:
                upstream.start(era)

    def update(self, servers: Sequence[Server]) -> None:
        """Follow entries that changed without needing a restart: limits, and which tools exist."""
        for server in servers:
            if (upstream := self._upstreams.get(server.name)) is not None:
                upstream.timeout_s = server.entry.timeout_s
                upstream.relist_all()

    async def remove(self, names: Iterable[str]) -> None:
        """End upstreams that are removed or started again with other settings."""
        for name in names:
            if (upstream := self._upstreams.remove(name)) is not None:
                await upstream.stop()
                self._memory.forget_upstream(name)

    async def stop(self) -> None:
        """End every upstream."""
        await asyncio.gather(*(upstream.stop() for upstream in self._upstreams))
