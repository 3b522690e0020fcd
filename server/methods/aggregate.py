"""Resources, prompts and completions of all upstreams as if they were one server's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from foretool.server.clients.exchange import Exchange
from foretool.server.clients.registry import ClientRegistry
from foretool.server.config.live import LiveConfig
from foretool.server.methods.completion import Completion
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.merged_lists import MergedLists
from foretool.server.methods.prompts import Prompts
from foretool.server.methods.resources import Resources
from foretool.server.methods.subscriptions import Subscriptions
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era


class PromptFollower(Protocol):
    """Whoever read the prompts of upstreams and follows their changes."""

    def prompts_changed(self, upstream: Upstream) -> None: ...


class Aggregate:
    """Builds the parts that merge upstreams, and passes the news of upstreams on to them."""

    def __init__(
        self, upstreams: UpstreamRegistry, clients: ClientRegistry, forwarder: Forwarder, config: LiveConfig,
        answer_step: Callable[[Exchange], None], follower: Callable[[], PromptFollower | None],
    ) -> None:  # fmt: skip
        """`answer_step`: answers our own prompt. `follower`: returns whoever follows prompts, None before a search."""
        self._lists = MergedLists(upstreams, clients, forwarder, config)
        self.resources = Resources(upstreams, self._lists, forwarder)
        self.prompts = Prompts(upstreams, self._lists, forwarder, config, answer_step)
        self.subscriptions = Subscriptions(upstreams, clients, self.resources, forwarder)
        self.groups = (self.resources, self.prompts, Completion(upstreams, self.resources, self.prompts, forwarder))
        self._follower = follower

    def upstream_came(self, upstream: Upstream) -> None:
        """An upstream has listed its tools: lists that had to do without it have changed."""
        self._lists.upstream_came(upstream)

    def resource_updated(self, upstream: Upstream, uri: str, params: dict[str, Any], era: Era) -> None:
        """An upstream has announced that a resource changed."""
        self.subscriptions.resource_updated(upstream, uri, params, era)

    def prompts_changed(self, upstream: Upstream) -> None:
        """An upstream has announced that its prompts changed."""
        if (follower := self._follower()) is not None:
            follower.prompts_changed(upstream)
