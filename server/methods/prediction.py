"""What is likely to come next in a conversation, from what was learned: lists that grow for it, and hints.

A prediction is made while the upstream works on a call, so that no result waits for it. Under `growing` the likely next
tools are appended to the list, in one batch, within the budget; the result of the call is held until the client has
listed again. Under every policy a hidden tool that is likely enough is named: in a text block at the end of what
`call_tool` and `discover_tools` answer, in `_meta` alone where a listed tool answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from foretool.retrieval.budget import fill_budget
from foretool.retrieval.list_growth import Fixed, Prediction, Rule, predicted
from foretool.retrieval.ranking import Ranked
from foretool.retrieval.tokens import estimate
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import Discovery, Tool, ToolId

if TYPE_CHECKING:
    from foretool.server.clients.client import Client
    from foretool.server.clients.session import Conversation, Session
    from foretool.server.proxy import Proxy

HINT_TOKENS: Final = 70
META_NEXT: Final = "foretool/next"


class Hint(Struct, frozen=True):
    """The hidden tool that is likely to be needed next."""

    tool: ToolId
    probability: float
    text: str

    @property
    def meta(self) -> dict[str, Any]:
        return {META_NEXT: {"name": self.tool, "probability": round(self.probability, 2)}}


class Foresight:
    """See the module."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy

    @property
    def is_ready(self) -> bool:
        """Whether anything was learned; looking costs nothing."""
        return self._proxy.search.has_learned

    def next(self, chat: Conversation) -> Prediction:
        """Which tools may be called next; none where nothing was learned."""
        return predicted(*self._proxy.search.predict(chat.steps, chat.lines))

    @property
    def rule(self) -> Rule:
        """What lists gain. What was learned of it is for the scores of certain encoders."""
        if not self.is_ready:
            return Fixed(most_found=None)
        return self._proxy.search.growth or Fixed()

    def hidden(self, client: Client, session: Session, chances: Mapping[ToolId, float]) -> dict[ToolId, float]:
        """Those of them that the client does not see and may call."""
        catalog, exposures = self._proxy.catalog, self._proxy.exposures
        return {
            tool: chance
            for tool, chance in chances.items()
            if not session.sees(tool)
            and (known := catalog.get(tool)) is not None
            and exposures.allowed(client.profile, known.upstream)
        }

    def grow_for(self, client: Client, session: Session, next: Prediction) -> bool:
        """Append the likely ones to the list; says whether the client was told to list again."""
        hidden = self.hidden(client, session, next.chances)
        return self.grow(client, session, self.rule.for_next(hidden, next.goes_on, self._proxy.catalog.tokens))

    def grow(self, client: Client, session: Session, tools: Sequence[ToolId], *, found: bool = False) -> bool:
        """Append tools to the list in one batch, where the client is known to re-list and as the budget allows; says
        whether it was told to. `found`: a discovery has found them, so they were missing from the list before."""
        if client.policy(session) != "growing":
            return False
        view = client.view(session)
        left = view.budget - view.tokens - sum(self._proxy.catalog.tokens(tool) for tool in session.grown)
        unseen = (tool for tool in tools if not session.sees(tool))
        added = fill_budget(unseen, self._proxy.catalog.tokens, left)
        if not added:
            return False
        session.grow(added, found=found)
        client.record_list(session, "growth")
        client.announce()
        return True

    def grow_by(self, client: Client, session: Session, discovery: Discovery) -> bool:
        """Append what a discovery has found, best first."""
        # Tools that were asked for by name stand first, with scores of another kind.
        rule = Fixed() if discovery.names and self.is_ready else self.rule
        ranked = [Ranked(match.tool, match.score, match.parts) for match in discovery.matches]
        is_sure = discovery.level in ("high", "medium")
        found = rule.for_discovery(ranked, is_sure, self._proxy.catalog.tokens)
        return self.grow(client, session, found, found=True)

    def grow_for_prompt(self, client: Client, session: Session, ranked: Sequence[Ranked], *, is_sure: bool) -> bool:
        """Append what a prompt is likely to need, best first, before it is missed."""
        return self.grow(client, session, self.rule.for_prompt(ranked, is_sure, self._proxy.catalog.tokens))

    def hint(self, client: Client, session: Session, chat: Conversation, next: Prediction) -> Hint | None:
        """The likeliest hidden tool, if it is likely enough to be worth its tokens."""
        threshold = self._proxy.settings.hint_threshold
        if threshold >= 1.0 or not next.goes_on:
            return None
        for tool, chance in self.hidden(client, session, next.chances).items():
            if chance < threshold:
                return None
            if (known := self._proxy.catalog.get(tool)) is not None:
                chat.hinted.add(tool)
                return Hint(tool, chance, hint_text(known))
        return None


def hint_text(tool: Tool) -> str:
    """One line: the tool, what it requires, what it does."""
    wanted, about = _about(tool.definition)
    text = f"Often next: {tool.id}({wanted}), through call_tool"
    return f"{text}: {about}" if about and estimate(f"{text}: {about}") <= HINT_TOKENS else f"{text}."


@lru_cache(maxsize=256)
def _about(definition: bytes) -> tuple[str, str]:
    """The arguments a tool requires, and what it does in a line."""
    # Not at the top: no list waits for what only predictions need.
    from foretool.retrieval.document import document, summary_line

    schema = jsonrpc.plain(jsonrpc.fields(definition)["inputSchema"])
    required = schema.get("required") if isinstance(schema, dict) else None
    wanted = ", ".join(map(str, required)) if isinstance(required, list) else ""
    return wanted, summary_line(document(Tool(ToolId(""), "", "", definition, "")))


def with_text(result: Raw, hint: Hint) -> Raw:
    """A result of the bridge with the hint as its last block; as it is where that cannot be."""
    try:
        members: dict[str, Any] = jsonrpc.fields(result)
    except ValueError:
        return result
    content = bytes(members.get("content", b"")).strip()
    if content[:1] != b"[" or content[-1:] != b"]":
        return result
    block = jsonrpc.encode({"type": "text", "text": hint.text})
    inner = content[1:-1].strip()
    members["content"] = Raw(b"[" + (inner + b"," if inner else b"") + block + b"]")
    return jsonrpc.raw(members)


def with_meta(result: Raw, hint: Hint) -> Raw:
    """A result of a listed tool with the hint in `_meta`, everything else as it is."""
    try:
        members: dict[str, Any] = jsonrpc.fields(result)
        meta = jsonrpc.fields(members.get("_meta", jsonrpc.UNSET))
    except ValueError:
        return result
    return jsonrpc.raw({**members, "_meta": {**meta, **hint.meta}})
