"""Keeps the list of each profile and policy for an epoch: stored byte for byte, and served unchanged.

No request of a client changes a list. It is made again when the tools, the settings or what was learned have changed,
when its epoch is over, and earlier where that breaks no prompt cache (`Epochs`). A list that other proxies on the same
store have made is taken up, so all of them serve one list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from foretool.server.config.loader import LiveConfig, Profile
from foretool.server.lists.maker import ListDraft, ListInputs, ListMaker, View
from foretool.server.lists.policy import PolicyLedger
from foretool.server.recording.recorder import Recorder
from foretool.storage.records import Exposure, ListReason, Policy, ToolId, Usage, WorkingSet, working_set_key
from foretool.storage.steps import Steps

_AGAIN: Final = 2
"""How often a list is prepared at most, because tools may change meanwhile."""
FIRST_S: Final = 7 * 86_400.0
"""For so long after the first session, what was used moves the list with every session that shares it with no other."""
QUIET_S: Final = 3600.0
"""Prompt caches of models last an hour at most: a list that nobody has used for longer may move at no cost."""


class ListKeeper:
    """Returns the current list of each profile and policy, and makes a new one when its epoch is over."""

    def __init__(self, inputs: ListInputs) -> None:
        self.maker = ListMaker(inputs)
        self.ledger = PolicyLedger(self.maker, inputs.recorder)
        self._catalog = inputs.catalog
        self._recorder = inputs.recorder
        self._epochs = Epochs(inputs.recorder, inputs.config)
        self._views: dict[tuple[str, Policy], View] = {}
        self._version = -1
        """The version of the catalog for which these were made."""
        self._prepared: set[tuple[int, str, Policy]] = set()
        """By version of the catalog, profile and policy: lists that were prepared."""
        self._movable: set[tuple[str, Policy]] = set()
        """Lists that are made again when they are next wanted, if what was used has changed."""

    # -- the current list

    def view(self, profile: Profile, policy: Policy) -> View:
        """Return the current list. This is cheap unless an epoch has begun."""
        if self._version != self._catalog.version:
            self._views.clear()
            self._version = self._catalog.version
        key = (profile.key, policy)
        if (view := self._views.get(key)) is None:
            draft = self.maker.draft(profile, policy)
            view = self._restore(draft)
            if view is None:
                view = self._store(draft)
            elif key in self._movable:
                view = self._move(draft, view)
            self._movable.discard(key)
            self._views[key] = view
        return view

    def at_hand(self, profile: Profile, policy: Policy) -> View | None:
        """Return the current list if it is in memory and up to date, else None. Does no work."""
        return self._views.get((profile.key, policy)) if self._version == self._catalog.version else None

    def prepare(self, profile: Profile, policy: Policy) -> Steps[None]:
        """Do the slow part of `view` in steps, which takes long with thousands of tools. If tools change meanwhile,
        only their part is done again."""
        for _ in range(_AGAIN):
            version = self._catalog.version
            if (version, profile.key, policy) in self._prepared:
                return
            current = {done for done in self._prepared if done[0] == self._catalog.version}
            self._prepared = current | {(version, profile.key, policy)}
            if self._restore(self.maker.draft(profile, policy)) is None:
                yield from self.maker.read_new(profile, policy)
            if self._catalog.version == version:
                return

    def preview(self, profile: Profile, policy: Policy) -> View:
        """Return what `view` would return, without storing a new list."""
        return self._restore(self.maker.draft(profile, policy)) or self.try_out(profile, policy)

    def foresee(self, profile: Profile, policy: Policy) -> View:
        """Return the list that the next client would get if no running session shares it, without storing it."""
        draft = self.maker.draft(profile, policy)
        view = self._restore(draft)
        if view is None:
            return self.try_out(profile, policy)
        if not self._epochs.may_move() or (ranked := self._rank_moved(draft, view)) is None:
            return view
        new = draft.write(draft.choose(ranked), self._next_epoch(draft))
        return draft.show(new, self._epochs.end(new.created_at), ranked)

    def try_out(self, profile: Profile, policy: Policy) -> View:
        """Return the list that would be made now, whatever was stored."""
        draft = self.maker.draft(profile, policy)
        new = draft.write(draft.choose(), self._next_epoch(draft))
        return draft.show(new, self._epochs.end(new.created_at), draft.ranked)

    def would_tell(self, profile: Profile, policy: Policy, tool: ToolId) -> bool:
        """Return whether the list that would be made now defines or names a tool, without writing that list."""
        return self.maker.draft(profile, policy).choose().tells_of(tool)

    def views(self) -> list[View]:
        return list(self._views.values())

    # -- making and storing

    def _restore(self, draft: ListDraft) -> View | None:
        """Return the stored list, or None if its epoch is over or anything it was made of has changed."""
        stored = self._recorder.working_set(draft.key)
        if stored is None or stored.inputs != draft.digest or self._epochs.is_over(stored.created_at):
            return None
        return draft.show(stored, self._epochs.end(stored.created_at))

    def _store(self, draft: ListDraft, ranked: tuple[ToolId, ...] | None = None) -> View:
        """Make and store a new list; `ranked`: the order in which tools compete, if it is not that of the draft."""
        new = draft.write(draft.choose(ranked), self._next_epoch(draft))
        if not self._recorder.save_working_set(new):
            # Another proxy on this store was first; all of them serve one list.
            theirs = self._recorder.working_set(new.key)
            new = theirs if theirs is not None and theirs.inputs == new.inputs else new
        return draft.show(new, self._epochs.end(new.created_at), draft.ranked if ranked is None else ranked)

    def _next_epoch(self, draft: ListDraft) -> int:
        stored = self._recorder.working_set(draft.key)
        return stored.epoch + 1 if stored else 1

    def _move(self, draft: ListDraft, view: View) -> View:
        """Return a list that holds what was used since this one was made; this one, if that changes nothing."""
        ranked = self._rank_moved(draft, view)
        return self._store(draft, ranked) if ranked is not None else view

    def _rank_moved(self, draft: ListDraft, view: View) -> tuple[ToolId, ...] | None:
        """Return the order in which tools compete with what was used since a list was made; None if that changes
        nothing."""
        if last_use(draft.usages) <= view.created_at:
            return None
        ranked = draft.rank_use((*view.tools, *view.named))
        defined, named = draft.choose(ranked)
        is_same = {*defined, *dict(draft.own)} == view.shown and set(named) == set(view.named)
        return None if is_same else ranked

    # -- when lists move

    def forget(self) -> None:
        """Check every list again, because settings or models have changed."""
        self._views.clear()
        self._prepared.clear()
        self.maker.forget()

    def forget_person(self, person: str) -> None:
        """Check the lists of one person again, because a server has listed other tools to them."""
        for key in [key for key in self._views if key[0].endswith(f"\x1f{person}")]:
            del self._views[key]
        self._prepared.clear()
        self.maker.forget(person)

    def advance(self) -> bool:
        """Begin a new epoch for lists older than `epoch_s` and for those that nobody uses; return whether there is
        one."""
        due = [key for key, view in self._views.items() if self._epochs.is_over(view.created_at)]
        quiet = [key for key in self._views if key not in due and self._epochs.is_quiet(key[0])]
        for key in (*due, *quiet):
            del self._views[key]
        self._movable.update(quiet)
        return bool(due or quiet)

    def follow_others(self) -> bool:
        """Take up the lists that other proxies have made since; return whether there is one."""
        stored = {key: self._recorder.working_set(working_set_key(*key)) for key in self._views}
        due = [key for key, new in stored.items() if new is not None and new.epoch > self._views[key].epoch]
        for key in due:
            del self._views[key]
        return bool(due)

    def begin_session(self, profile: str) -> None:
        """Allow the lists of a profile to change: a session begins that shares them with no other one here."""
        if self._epochs.may_move():
            keys: list[tuple[str, Policy]] = [(profile, "frozen"), (profile, "growing")]
            self._movable.update(keys)
            for key in keys:
                self._views.pop(key, None)

    # -- what clients were given

    def record(self, session: str, view: View, grown: Sequence[ToolId], reason: ListReason, profile: str = "") -> int:
        """Record the list that a session was given; return the id of the record."""
        more = tuple(tool for tool in grown if tool not in view.shown)
        tokens = view.tokens + sum(map(self._catalog.tokens, more))
        self._epochs.note_given(profile)
        given = Exposure(session, self._recorder.now(), view.policy, view.epoch, view.tools + more, tokens, reason)
        id = self._recorder.exposure(given)
        if view.named:
            self._recorder.exposure(replace(given, tools=view.named, tokens=0, reason="named"))
        return id

    def given(self, view: View, id: int, grown: Sequence[ToolId]) -> View:
        """Return the list as a record says it was given; `view` itself if the record agrees with it or is gone."""
        recorded = self._recorder.exposed(id)
        if recorded is None:
            return view
        tools = tuple(tool for tool in recorded.tools if tool not in grown)
        if set(tools) == {tool for tool in view.tools if tool not in grown}:
            return view
        return replace(view, epoch=recorded.epoch, tools=tools, shown=frozenset(tools), array=b"", legacy_array=b"")

    def recall(self, profile: Profile, given: Exposure, named: Sequence[ToolId]) -> tuple[View, tuple[ToolId, ...]]:
        """Return the list that another proxy gave a session, and the tools that had grown on it. If the stored list is
        gone, the tools of the record stand for it and none has grown. `named`: the tools that the list named. Makes no
        new list."""
        draft = self.maker.draft(profile, given.policy)
        stored = self._recorder.working_set(draft.key)
        if stored is not None and stored.epoch == given.epoch and set(stored.tools) <= set(given.tools):
            grown = tuple(tool for tool in given.tools if tool not in stored.tools)
            view = draft.show(stored, self._epochs.end(stored.created_at))
        else:
            listed = WorkingSet(draft.key, given.epoch, given.tools, b"", given.at, "", tuple(named))
            grown, view = (), replace(draft.show(listed, None), array=b"", legacy_array=b"")
        # What is not known now was known to the proxy that made it.
        return replace(view, offline=frozenset(), servers=None), grown


class Epochs:
    """Says when a list may move, for the lists of all profiles; times are seconds since 1970.

    Early is, in the first week, when a session begins that shares the list with no other one of this process, and at
    any time once nobody has used the list for longer than a prompt cache lasts.
    """

    def __init__(self, recorder: Recorder, config: LiveConfig) -> None:
        self._recorder = recorder
        self._config = config
        self._given_at: dict[str, float] = {}
        """By profile: when a client last got a list of it; none once that was found to be long ago."""

    def note_given(self, profile: str) -> None:
        self._given_at[profile] = self._recorder.now()

    def end(self, created_at: float) -> float | None:
        """Return when the epoch of a list ends, in seconds since 1970; None if it does not end by time."""
        epoch_s = self._config.settings.epoch_s
        return created_at + epoch_s if epoch_s else None

    def is_over(self, created_at: float) -> bool:
        end = self.end(created_at)
        return end is not None and self._recorder.now() >= end

    def may_move(self) -> bool:
        """Return whether a session that begins, and shares its list with no other one, may get another list."""
        if not self._config.settings.epoch_s:
            return False
        now = self._recorder.now()
        return now - self._recorder.first_session_at() < FIRST_S or now - last_use(self._recorder.usage()) >= QUIET_S

    def is_quiet(self, profile: str) -> bool:
        """Return, once for each such time, whether a profile's lists are unused for longer than prompt caches last."""
        now = self._recorder.now()
        if not self._config.settings.epoch_s or now - self._given_at.get(profile, now) < QUIET_S:
            return False
        used = last_use(self._recorder.usage())
        if now - used < QUIET_S:
            self._given_at[profile] = used
            return False
        del self._given_at[profile]
        return True


def last_use(usages: Sequence[Usage]) -> float:
    """Return when a tool was last called, 0 if none was."""
    return max((usage.last_at for usage in usages), default=0.0)
