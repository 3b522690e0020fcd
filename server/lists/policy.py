"""Which policy `auto` chooses for a client: what was measured of its name and version, and until then what is believed.

A name is only the first belief. One growing attempt measures a client that nobody has seen, and its result outranks
the name. One late list is no verdict, because a busy machine makes any client late: a client that is known to list
again is frozen after two failures, and both kinds are tried again. A new version of a client is measured again. All
tools are listed to a client that keeps lists out of its prompts.

Codex runs most of its models in *code mode*: the model writes JavaScript, and its code looks through all tools
(`ALL_TOOLS`) and calls them by their own names. Of a server the prompt holds the `instructions` alone, however long its
list is (seen with 0.171.0). So a list of all tools costs such a model nothing, and its code can call what it has. The
same client puts the whole list into the prompt of a model that it does not know. Nothing tells the two apart before the
first call: Codex writes into `_meta` which model runs, and gives the calls of code an id of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config.loader import Profile
from foretool.server.config.settings import PolicyChoice
from foretool.server.lists.maker import ListMaker
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.recording.recorder import Recorder
from foretool.storage.records import VSCODE_BUILDS, ClientRecord, Era, Policy, SessionRecord

CODE_SESSIONS: Final = 3
"""After a call by code, a client gets all tools for so many sessions: in one whose prompt cannot hold them, no call
will ever tell."""
MOST_FOR_CODE: Final = 1000
"""Lists of more tools are not shown whole to code either: each start of the client reads them."""
_TURN: Final = "x-codex-turn-metadata"
_CALL: Final = "callId"
_BY_CODE: Final = "exec-"
RELISTERS: Final = frozenset({
    "claude-code", "copilot-cli", "gemini-cli-mcp-client", "opencode", "mcp-use", "goose", "windsurf",
    "visual studio code - insiders", *VSCODE_BUILDS,
})  # fmt: skip
"""Clients known to list again after `list_changed` within the turn (docs/clients.md has the sources), until the ledger
knows better."""

RELIST_SHARE: Final = 0.5
"""A list grows only for clients that list again after at least this share of the announcements they get."""

TRIES: Final = 3
"""How often a client is tried. An attempt that gives a result is the last, unless the client listed late or is known to
list again; an attempt gives none if the client leaves before it gets the answer that waits for it."""

_FAILURES: Final = 2
"""How often a client that is known to list again may fail to before its list is frozen."""

_RECOVERED: Final = "11"
"""The latest outcomes of a client whose list grows again, however often it failed before."""

LATE_S: Final = 30.0
"""A client that lists again within this time, but not in time (`growth.RELIST_S`), is late: the machine may be busy."""

_SCHEDULED: Final = 0.1
"""A list counts as an answer to an announcement only if the client's own schedule brings one so soon with at most this
chance."""

_SCHEDULE: Final = 2
"""A client that listed so often without being told to may have a schedule of its own."""


def is_called_by_code(meta: Mapping[str, Raw]) -> bool | None:
    """Return whether code of a model made a call, by its `_meta`; None where the client does not say."""
    if _TURN not in meta or (call := jsonrpc.text(meta.get(_CALL))) is None:
        return None
    return call.startswith(_BY_CODE)


class Told(Enum):
    """Where a client stands that may have been told to list again."""

    NOTHING = "it was told nothing, or has listed since"
    WAITING = "it has some time left to list"
    OVERDUE = "it did not list in time, and may still"


class Relisted(Struct, frozen=True):
    """What a client's new list shows about how the client reacts to announcements."""

    delay_s: float | None
    """How long after it was told; None if it comes from the client's own schedule."""
    is_late: bool = False


class RelistWatch:
    """Measures whether a client lists again when it is told; times are those of the loop, in seconds."""

    def __init__(self) -> None:
        self.state = Told.NOTHING
        self._told_at = 0.0
        self._is_held_in_vain = False
        """A result was held for the present announcement, and let go because the client did not list."""
        self._first_at = 0.0
        """When the client listed first; 0 before that."""
        self._unasked = 0
        """How many lists after the first one came although nothing was announced."""

    def tell(self, now: float) -> bool:
        """Note that the client is told to list again. Returns False, and changes nothing, while it still has time to
        answer the last announcement."""
        if self.state is Told.WAITING:
            return False
        self.state, self._told_at, self._is_held_in_vain = Told.WAITING, now, False
        return True

    def expire(self, told_at: float) -> bool:
        """Note that the time for the announcement of `told_at` is over; return whether the client did not list."""
        if self.state is not Told.WAITING or self._told_at != told_at:
            return False
        self.state = Told.OVERDUE
        return True

    def give_up(self) -> None:
        """Note that a result was held long enough, and the client did not list."""
        self._is_held_in_vain = self.state is Told.WAITING

    def close(self) -> bool:
        """Note that the client is gone; return whether a result was held for it in vain: it had time enough to list."""
        had_time = self.state is Told.WAITING and self._is_held_in_vain
        self.state = Told.NOTHING
        return had_time

    def note_list(self, now: float) -> Relisted | None:
        """Note that the client lists. Returns what that shows about it; None if it shows nothing."""
        before, self.state = self.state, Told.NOTHING
        delay_s = now - self._told_at
        comes_anyway = is_scheduled(delay_s, self._unasked, self._told_at - self._first_at)
        said = None
        if before is Told.WAITING:
            said = Relisted(None if comes_anyway else delay_s)
        elif before is Told.OVERDUE and not comes_anyway:
            said = Relisted(delay_s, is_late=True) if delay_s <= LATE_S else None
        elif self._first_at:
            self._unasked += 1
        self._first_at = self._first_at or now
        return said


class PolicyLedger:
    """Reads and records how clients treat changes of their lists, and chooses the policy of each session from that."""

    def __init__(self, maker: ListMaker, recorder: Recorder) -> None:
        self._maker = maker
        self._recorder = recorder

    def choose(self, profile: Profile, session: SessionRecord) -> Policy:
        """Return the policy of one session, from its profile, its era and the ledger.

        `auto` is `full` where a list of all tools was measured to cost the client less than discoveries, and where the
        client keeps lists out of its prompts.
        """
        measured = self._recorder.client(*_key(session))
        if profile.policy == "auto" and measured is not None:
            if self._pays_whole(profile, measured.whole_tokens):
                return "full"
            if measured.code_sessions and not self._has_room(profile):
                measured = replace(measured, code_sessions=0)
        return choose_policy(profile.policy, session.era, session.client, measured)

    def _pays_whole(self, profile: Profile, tokens: int) -> bool:
        """Return whether all tools of a profile fit so many tokens, which are more than it has for a list."""
        draft = self._maker.draft(profile, "full")
        return draft.may_be_whole and tokens > profile.list_tokens and bool(draft.fitting_whole(tokens))

    def _has_room(self, profile: Profile) -> bool:
        """Return whether all tools of a profile may be listed to code."""
        draft = self._maker.draft(profile, "full")
        return draft.may_be_whole and len(draft.choose().defined) <= MOST_FOR_CODE

    def note_caller(self, session: SessionRecord, *, is_code: bool) -> None:
        """Record whether code of its model makes the calls of a client."""
        self._recorder.set_code_sessions(session.client, CODE_SESSIONS if is_code else 0)

    def note_whole_list(self, session: SessionRecord) -> None:
        """Record that a client gets all tools, though `auto` chose its policy."""
        self._recorder.spend_code_session(session.client)

    def begin_try(self, profile: Profile, session: SessionRecord) -> bool:
        """Return whether the list of a client that was never measured may grow once, and record the attempt."""
        if self._recorder.backlog.refusal:
            return False  # what the attempt shows could not be kept
        if not can_be_tried(profile.policy, session.era):
            return False  # every search comes here, and need not read the store for that
        if not is_worth_a_try(profile.policy, session.era, session.client, self._recorder.client(*_key(session))):
            return False
        self._add(session, tries=1)
        return True

    def note_relist(self, session: SessionRecord, delay_s: float | None) -> None:
        """Record that a client listed again `delay_s` after it was told to, or (None) did not in time."""
        relisted, ms = (0, 0.0) if delay_s is None else (1, delay_s * 1000)
        self._add(session, announced=1, relisted=relisted, ms=ms)

    def note_late(self, session: SessionRecord) -> None:
        """Record that a client listed again, later than it should have."""
        self._add(session, late=1)

    def _add(
        self, session: SessionRecord, announced: int = 0, relisted: int = 0, ms: float = 0.0, late: int = 0,
        tries: int = 0,
    ) -> None:  # fmt: skip
        now = self._recorder.now()
        self._recorder.add_client_relist(
            ClientRecord(*_key(session), announced, relisted, ms, now, late=late, tries=tries)
        )


def _key(session: SessionRecord) -> tuple[str, str, Era]:
    return session.client, session.version, session.era


def relist_share(record: ClientRecord | None) -> float | None:
    """Return the share of announcements after which a client listed again, lately; None if none was measured."""
    if record is None or not record.announced:
        return None
    if record.recent:
        return record.recent.count("1") / len(record.recent)
    return record.relisted / record.announced


def choose_policy(wanted: PolicyChoice, era: Era, client: str, ledger: ClientRecord | None) -> Policy:
    """Return the policy of one client. `auto` lists all tools to code, which keeps them out of its model's prompt, and
    grows lists only for legacy clients that list again when told."""
    if wanted != "auto":
        # A growing list violates a MUST NOT of the modern specification, so `auto` never chooses it there.
        return wanted
    if ledger is not None and ledger.code_sessions:
        return "full"
    if era == "modern":
        return "frozen"
    share = relist_share(ledger)
    if ledger is None or share is None:
        return "growing" if client.lower() in RELISTERS else "frozen"
    return "growing" if share >= RELIST_SHARE or _has_credit(ledger) else "frozen"


def _is_known(ledger: ClientRecord) -> bool:
    """Return whether a client has listed again in time once, or is one of those that are known to."""
    return ledger.relisted > 0 or ledger.client.lower() in RELISTERS


def _has_credit(ledger: ClientRecord) -> bool:
    """Return whether the list of a client grows although it listed again after less than half of its announcements."""
    return ledger.recent.endswith(_RECOVERED) or (_is_known(ledger) and ledger.announced - ledger.relisted < _FAILURES)


def can_be_tried(wanted: PolicyChoice, era: Era) -> bool:
    """Return whether what is known of a client decides whether its list may grow once; a setting or an era may forbid
    it."""
    return wanted == "auto" and era != "modern"


def is_worth_a_try(wanted: PolicyChoice, era: Era, client: str, ledger: ClientRecord | None) -> bool:
    """Return whether the list of a client may grow once to see whether the client lists again.

    That is so for a client that was never measured, for one that listed again later than it should have, and for one
    that is known to list again and has stopped.
    """
    if not can_be_tried(wanted, era) or choose_policy(wanted, era, client, ledger) != "frozen":
        return False
    if ledger is None or relist_share(ledger) is None:
        return ledger is None or ledger.tries < TRIES
    return ledger.tries < TRIES and (ledger.late > 0 or _is_known(ledger))


def is_scheduled(delay_s: float, unasked: int, watched_s: float) -> bool:
    """Return whether a list may come from the client's own schedule and not from the announcement.

    `delay_s`: how long after the announcement it came. `unasked`: how many lists the client asked for without being
    told to, in the `watched_s` seconds between its first list and the announcement.
    """
    return unasked >= _SCHEDULE and delay_s * unasked > _SCHEDULED * watched_s


def explain_policy(record: ClientRecord) -> str:
    """Say why `auto` treats a client as it does."""
    if record.code_sessions:
        return "code of its model makes its calls, and no list stands in its prompt: it gets all tools"
    if record.whole_tokens:
        return f"{_explain_growth(record)}; lists of all tools up to {record.whole_tokens:,} tokens cost it less"
    return _explain_growth(record)


def _explain_growth(record: ClientRecord) -> str:
    share = relist_share(record)
    if record.era == "modern":
        rule = "its protocol forbids lists that grow on request"
        return rule if share is None else f"{rule} (when told of a change, it {_describe(share)})"
    if share is not None:
        return _explain_share(record, share)
    if record.client.lower() in RELISTERS:
        return "not measured yet; clients of this name are known to list again"
    if record.tries >= TRIES:
        return f"not measured: it left too soon, {record.tries} times"
    return "not measured yet; its next search will show"


def _describe(share: float) -> str:
    if share == 1.0:
        return "lists again"
    return f"lists again {share:.0%} of the time" if share else "does not list again"


def _explain_share(record: ClientRecord, share: float) -> str:
    """Say what a legacy client does when told of a change, and what follows from it where that is not plain."""
    if share >= RELIST_SHARE:
        return f"when told of a change, it {_describe(share)}"
    if record.recent.endswith(_RECOVERED):
        return f"when told of a change, it {_describe(share)}, the last two times too"
    if _has_credit(record):
        return "clients of this name are known to list again; this one failed to, once"
    does = "lists again too late" if record.late and not share else _describe(share)
    is_tried = is_worth_a_try("auto", record.era, record.client, record)
    return f"when told of a change, it {does}" + ("; it is tried again" if is_tried else "")
