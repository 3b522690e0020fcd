"""Says why a tool is not on a list, and what would have put it there: the reasons of `server.lists`, read backwards."""

from __future__ import annotations

from functools import cached_property
from typing import Final

from msgspec import Struct

from foretool.server.config.loader import Profile
from foretool.server.lists.epochs import ListKeeper
from foretool.server.lists.maker import ListMaker, View
from foretool.server.lists.pages import has_page
from foretool.storage.records import Cause, Policy, ToolId

KEPT_FOR_USE: Final = "the room that the list has left is kept for tools in use and for names"
"""Why a list lacks a candidate although it has room."""
KEPT_BEFORE: Final = "what the list has left is kept for tools in use and for names"
"""The same, as misses that are on record already say it."""


class Why(Struct, frozen=True):
    cause: Cause
    rank: int
    of: int
    change: str


class HiddenTools:
    """Explains why lists lack tools."""

    def __init__(self, lists: ListKeeper) -> None:
        self._lists = lists
        self._inputs = lists.maker.inputs

    def why(self, view: View, tool: ToolId, upstream: str) -> Why:
        """Explain why a tool is not in `view.shown`, and which change would have shown it."""
        if view.profile is None:
            return _explain_step(view, tool, upstream)
        explained = _ExplainedList(self._lists.maker, view, view.profile)
        ranked = explained.ranked
        rank = ranked.index(tool) + 1 if tool in ranked else 0
        if upstream in view.offline or (view.servers is not None and upstream not in view.servers):
            change = f"none: the tools of {upstream!r} were not known yet, and are from now on"
            return Why("offline", rank, len(ranked), change)
        if self._is_listed_now(view, view.profile, tool) or explained.would_tell(view.policy, tool):
            change = "none: the list was made before the tool was used or came, and the next one has it"
            return Why("stale", rank, len(ranked), change)
        if view.profile.shows_pages and has_page(self._inputs.catalog, tool):
            change = f"pin {tool}, or raise list_tokens over {view.budget}: its page is shown if the list has it"
            return Why("app", rank, len(ranked), change)
        if (tokens := explained.kept_back(tool)) > 0:
            change = f'pin {tool}, or set "policy": "frozen": this list keeps {tokens:,} tokens for what it gains'
            return Why("policy", rank, len(ranked), change)
        if rank and view.tokens + self._inputs.catalog.tokens(tool) <= view.budget:
            change = f"pin {tool}: without that, {KEPT_FOR_USE}"
            return Why("budget", rank, len(ranked), change)
        if rank:
            return Why("budget", rank, len(ranked), f"raise list_tokens over {view.budget}, or pin {tool}")
        if tool in self._inputs.recorder.failing():
            change = f"see why its calls fail, or pin {tool}: one that works brings it back"
            return Why("failing", 0, len(ranked), change)
        return Why("rank", 0, len(ranked), f"pin {tool}, or let it be used: the working set follows usage")

    def _is_listed_now(self, view: View, profile: Profile, tool: ToolId) -> bool:
        """Return whether the current list has a tool: the tools, the settings or what was learned have changed since an
        older one was made."""
        current = self._lists.at_hand(profile, view.policy) or self._lists.preview(profile, view.policy)
        return tool in current.told


class _ExplainedList:
    def __init__(self, maker: ListMaker, view: View, profile: Profile) -> None:
        self.view = view
        self._maker = maker
        self._profile = profile

    @cached_property
    def ranked(self) -> tuple[ToolId, ...]:
        """The tools in the order in which they competed. Only a miss needs it, so a stored list is ranked again only
        then."""
        if self.view.ranked is not None:
            return self.view.ranked
        return self._maker.draft(self._profile, self.view.policy).ranked

    def would_tell(self, policy: Policy, tool: ToolId) -> bool:
        """Return whether a list that is made now would define or name a tool because it was used; a tool that nobody
        used changes nothing."""
        draft = self._maker.draft(self._profile, policy)
        if not any(usage.tool == tool for usage in draft.usages):
            return False
        return draft.split(draft.rank_use(self.view.told)).tells_of(tool)

    def kept_back(self, tool: ToolId) -> int:
        """Return the tokens that a list which may grow keeps free for that, if they are why it lacks a tool; else 0."""
        if self.view.policy != "growing":
            return 0
        frozen = self._maker.draft(self._profile, "frozen")
        if not self.would_tell("frozen", tool) and not frozen.choose(self.ranked).tells_of(tool):
            return 0
        return self._maker.draft(self._profile, "growing").budget.kept_free


def _explain_step(view: View, tool: ToolId, upstream: str) -> Why:
    ranked = view.ranked or ()
    rank = ranked.index(tool) + 1 if tool in ranked else 0
    if upstream in view.offline:
        change = f"none: the tools of {upstream!r} were not known yet, and are from now on"
        return Why("offline", rank, len(ranked), change)
    if 0 < rank <= view.most:
        return Why("budget", rank, len(ranked), f"give the step more than {view.budget} tokens, or pin {tool}")
    return Why("rank", rank, len(ranked), f"widen the step, pin {tool}, or say more of the task")
