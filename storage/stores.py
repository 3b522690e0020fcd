"""What a store answers and keeps, by subject, whichever database engine is below; `opening.open_store` opens one.

Every method may raise `StorageError`. A write that raised has left nothing in the store and may be repeated. Reading
one record gives None if the store does not have it, and adding one gives its id. Lists have the newest record first
unless the method says otherwise; a negative limit means no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from foretool.storage.places import StorePlace
    from foretool.storage.records import (
        Answer,
        Approval,
        Artifact,
        AuditEntry,
        AuditFilter,
        Call,
        ClientRecord,
        Conversation,
        CostSum,
        Definition,
        DefinitionHead,
        DefinitionKind,
        Discovery,
        Episode,
        Era,
        Event,
        Exposure,
        Failure,
        FirstSight,
        Flow,
        FlowKey,
        Forgotten,
        HeldHead,
        Holder,
        Letter,
        LiveEvent,
        LiveSession,
        LogPart,
        Miss,
        MissCount,
        MissFilter,
        Neighbour,
        ProfileCount,
        Prompt,
        Retry,
        Selection,
        SessionRecord,
        SessionSum,
        Statistics,
        StepRecord,
        Tool,
        ToolId,
        ToolVersion,
        UpstreamRecord,
        UpstreamState,
        Usage,
        Wording,
        WorkingSet,
    )
    from foretool.storage.redaction import Known


BEAT_S: Final = 5.0
"""Seconds between two signs of life of a process that has a lead."""
KEPT_MODELS: Final = 3
"""Models of a kind whose bytes are kept: the served one, and those that a rollback can bring back."""


class StorageError(Exception):
    """The store could not be read or written; the message says which store, what was found, and the way out."""

    def __init__(self, message: str, *, temporary: bool = False, lost: bool = False) -> None:
        super().__init__(message)
        self.temporary = temporary
        """The same call may succeed later: the store was locked, or the disk full."""
        self.lost = lost
        """No call succeeds until something happens to the file: it is damaged, read-only or of another version."""


class CallStore(Protocol):
    """Calls, and the misses that they and discoveries revealed."""

    def record(self, calls: Sequence[Call], misses: Sequence[Miss] = ()) -> None:
        """Commit a batch in one transaction; when this returns, `kill -9` loses none of it.

        The `call` of a miss is the place in `calls`, counted from 1, of the call that revealed it; the store keeps
        that call's id instead. Raises `ValueError` if there is no such place.
        """

    def revise(self, changed: Sequence[tuple[Miss, Miss | None]]) -> None:
        """Bring misses on record up to date: each is given as it was written and as it is known by now, None if it was
        none. The call that revealed a miss stays."""

    def get(self, id: int) -> Call | None: ...
    def recent(self, limit: int) -> list[Call]: ...

    def of_session(self, session: str, since: float, until: float) -> list[Call]:
        """Return the calls of a session in a time, the oldest first."""

    def failing(self, limit: int) -> set[ToolId]:
        """Return the tools that failed at each of their calls, as far as these are among the latest `limit` calls."""

    def events(self, limit: int) -> list[Event]:
        """Return the latest calls as events, the oldest first."""

    def shared_events(self, limit: int) -> list[Event]:
        """Return the same of sessions whose people are learned from: what may be shown to others."""

    def events_before(self, at: float, limit: int, among: int) -> list[Event]:
        """Return the latest `limit` calls that began before a time as events, the oldest first, as far as their
        ids are among the latest `among`."""

    def used_since(self, since: float, among: int) -> list[Usage]:
        """Return how often each tool was missed since a time, and how often called, as far as the ids of those calls
        are among the latest `among`."""

    def last_used(self, before: float, among: int) -> dict[ToolId, float]:
        """Return when each tool was last called before a time, as far as the calls with the latest `among` ids
        say."""

    def retries(self, limit: int, since: float, within_s: float) -> tuple[list[Retry], float]:
        """Return the retries among the latest `limit` calls that began `since` a time or later, in the order of their
        times, as far as the second call came so soon; and the time of the first call that was read."""

    def first_of_latest(self, limit: int) -> int:
        """Return the id of the oldest of the latest `limit` calls; 0 if there is none."""

    def latest_of(self, tools: Collection[ToolId], each: int, before: int, most: int) -> list[int]:
        """Return the ids of the latest calls of these tools, the newest first: `each` of a tool that are older than the
        call `before`, as far as they are found among the `most` calls before it."""

    def events_between(self, first: int, last: int) -> list[Event]:
        """Return the calls from one id to another as events, the oldest first."""

    def miss(self, id: int) -> Miss | None: ...
    def misses(self, since: float = 0.0, limit: int = -1) -> list[Miss]: ...

    def find_misses(self, wanted: MissFilter, limit: int = -1) -> list[Miss]: ...

    def count_misses(self, wanted: MissFilter) -> list[MissCount]:
        """Return how often each tool was missed for each cause, the most frequent first."""

    def usage(self) -> list[Usage]:
        """Return every tool ever called or missed, the most called first. Misses of unknown names do not count, nor
        does what people did who opted out of learning."""

    def counted_usage(self) -> list[Usage]:
        """Return the same without the latest records, as far as `fold_some` has not counted them; fast however many
        there are."""

    def counted_usage_of(self, profile: str) -> list[Usage]:
        """Return the same of the sessions of one profile, since the store counts profiles."""

    def fold_some(self) -> bool:
        """Count a few thousand more records for `usage`; return whether some are left. `record` counts none, so that
        it stays cheap."""


class AuditStore(Protocol):
    """Who called what and who decided what: entries are added, and never changed or deleted."""

    def add(self, entries: Sequence[AuditEntry]) -> None: ...
    def find(self, wanted: AuditFilter, limit: int = -1) -> list[AuditEntry]: ...

    def each(self, since: float, until: float) -> Iterator[AuditEntry]:
        """Yield the entries of a time, the oldest first."""


class GrantStore(Protocol):
    """What people have allowed foretool to do at servers for them, sealed. No export has it."""

    def load(self, server: str, person: str) -> bytes | None: ...
    def save(self, server: str, person: str, sealed: bytes, at: float) -> None: ...

    def replace(self, server: str, person: str, old: bytes, sealed: bytes, at: float) -> bool:
        """Save in place of `old`; return False, and change nothing, if that is not there any more."""

    def remove(self, server: str, person: str, old: bytes | None = None) -> bool:
        """Delete a grant, with `old` only while it is this one; return whether one went."""

    def servers(self, person: str) -> Sequence[str]: ...

    def begin(self, ident: bytes, sealed: bytes, until: float) -> None:
        """Keep a consent that is under way, until a time in seconds since 1970."""

    def take(self, ident: bytes, now: float) -> bytes | None:
        """Return a consent under way, once: it is not there afterwards."""

    def take_late(self, now: float, most: int) -> list[tuple[bytes, bytes]]:
        """Return at most so many consents whose time is over, each once, with what it was begun under."""


class SessionStore(Protocol):
    """Sessions, and the tool lists (exposures) that they received."""

    def name_person(self, session: str, person: str, *, learns: bool, at: float) -> None:
        """Keep whose a session is, and whether it may be learned from."""

    def people(self) -> dict[str, tuple[str, bool]]:
        """Return whose each session is of which that is kept, and whether it may be learned from."""

    def begin(self, session: SessionRecord) -> None:
        """Keep a session before its first call, and that its client was seen; a known key stays as it is."""

    def end(self, key: str, at: float) -> None: ...
    def get(self, key: str) -> SessionRecord | None: ...
    def recent(self, limit: int = -1) -> list[SessionRecord]: ...
    def ended(self, keys: Collection[str]) -> set[str]:
        """Return those of these sessions that have ended."""

    def first_at(self) -> float | None: ...
    def add_exposure(self, exposure: Exposure) -> int: ...
    def exposure(self, id: int) -> Exposure | None: ...

    def exposures(self, session: str) -> list[Exposure]:
        """Return the exposures of one session, the oldest first."""

    def conversations(self, limit: int) -> list[Conversation]:
        """Return the latest sessions that called or searched something, without those whose policy was `full`."""


class BrowseStore(Protocol):
    """What a person looks through. `profile` limits an answer to the sessions of one profile; None means all."""

    def sessions(self, before: float, limit: int, profile: str | None = None, client: str = "") -> list[SessionSum]:
        """Return sessions that began before a time, of one client or of all (""), the newest first."""

    def calls_of(self, session: str, most: int) -> list[Call]:
        """Return the first calls of a session, the oldest first."""

    def misses_of(self, session: str, most: int) -> list[Miss]:
        """Return the first misses of a session, the oldest first."""

    def neighbours(self, tool: ToolId, latest: int, profile: str | None = None) -> list[Neighbour]:
        """Return what was called right before and right after a tool within the latest calls, the most frequent
        first."""

    def counts(self, profile: str, since: float, latest: int) -> list[ProfileCount]:
        """Return what one profile did since a time, by hour and client, among the latest calls of all profiles."""

    def usage(self, profile: str, latest: int) -> list[Usage]:
        """Return the tools that one profile called among the latest calls of all profiles, or ever missed."""


class CostStore(Protocol):
    """What the log comes to by quarters of an hour, as `recording.costs` adds it up part by part."""

    def part(self, most: int, since: float = 0.0) -> LogPart:
        """Return the next part of the log that is not added up, with about `most` calls, as far as it is later than
        `since`."""

    def add(self, part: LogPart, sums: Sequence[CostSum], unfinished: Mapping[str, float], finished: float) -> bool:
        """Keep what a part comes to. `unfinished`: sessions whose turns from a time on come again with the next part;
        `finished`: the next `LogPart.finished`.

        Returns False, and keeps nothing, if another process has added up this part.
        """

    def waiting(self) -> int:
        """Return about how many calls are not added up."""

    def sums(self, since: float) -> list[CostSum]:
        """Return what is added up since a time, one sum for each day in local time and client."""

    def last_list(self, session: str, before: float) -> int:
        """Return the tokens of the list that a session had at a time; 0 if it had none."""

    def clients(self, sessions: Iterable[str]) -> dict[str, str]:
        """Return the client of each of these sessions that is on record."""

    def take_turn(self, now: float, until: int) -> bool:
        """Reserve adding up for one process until then; return False if another process has reserved it."""


class ExportStore(Protocol):
    """Whole kinds of records, from a time on and before another, in the order in which they were written.

    They are read a thousand at a time, so there may be millions.
    """

    def calls(self, since: float, until: float) -> Iterator[Call]: ...
    def misses(self, since: float, until: float) -> Iterator[Miss]: ...
    def exposures(self, since: float, until: float) -> Iterator[Exposure]: ...

    def call_events(self, since: float, until: float) -> Iterator[Event]:
        """Yield the calls as events, without those that were refused."""

    def task_events(self, since: float, until: float) -> Iterator[Event]:
        """Yield the discoveries that have a task as events."""

    def prompts(self, since: float, until: float) -> list[Prompt]:
        """Return the prompts that have a text, the oldest first."""


class ClientLedger(Protocol):
    """What each client, by name and version, does after a list has changed."""

    def add_relist(self, seen: ClientRecord) -> None:
        """Add what was seen to a client's counts; `relist_ms` is the delay of one re-list."""

    def set_whole(self, name: str, tokens: int) -> None:
        """Keep up to how many tokens a list of all tools pays for a client, whatever its version."""

    def get(self, name: str, version: str, era: Era) -> ClientRecord | None: ...
    def all(self) -> list[ClientRecord]: ...


class DiscoveryStore(Protocol):
    """Discoveries, and what happened after them."""

    def add(self, discovery: Discovery) -> int: ...
    def count_by_session(self, since: float) -> dict[str, int]:
        """Return how many discoveries each session has made since a time."""

    def set_handle(self, id: int, handle: str) -> None:
        """Keep which conversation a discovery belongs to: the handle that its answer gave out has come back."""

    def set_tokens(self, id: int, tokens: int) -> None:
        """Keep how many tokens the answer of a discovery takes, which was recorded with an estimate."""

    def get(self, id: int) -> Discovery | None: ...
    def recent(self, limit: int) -> list[Discovery]: ...

    def of_session(self, session: str, since: float, until: float) -> list[Discovery]:
        """Return the discoveries of a session in a time, the oldest first."""

    def events(self, since: float = 0.0, until: float = inf, limit: int = -1) -> list[Event]:
        """Return the latest discoveries of a time that have a task as events, the oldest first."""

    def answered(self, limit: int) -> list[Discovery]:
        """Return the latest discoveries that searched by task and found something, the newest first, without those of
        people who opted out of learning."""

    def answers(self, limit: int, since: float) -> list[Answer]:
        """Return what those of `answered` found that were made `since` a time or later, which is cheaper to read."""

    def first_calls(self, id: int, since: float) -> dict[int, ToolId]:
        """Return the tool called first on behalf of each discovery from `id` on."""

    def needs(self, since: float) -> Iterator[Event]:
        """Yield each need of a hidden tool, in no fixed order: searches by task, and calls of what a discovery found or
        the list lacked."""


class TaskStore(Protocol):
    """Tasks in words: what users asked their clients for, and what was selected for single steps."""

    def texts(self) -> list[str]:
        """Return the tasks of all discoveries and prompts, each text once, the latest first."""

    def latest(self, limit: int, profile: str | None = None) -> list[str]:
        """Return the `limit` latest of them, fewer if the same ones come all the time; fast however long the log is.
        Without those of people who opted out of learning. With `profile` only searches of its sessions."""

    def add_prompt(self, prompt: Prompt) -> int: ...
    def prompts(self, since: float = 0.0, limit: int = -1, until: float = inf) -> list[Prompt]: ...
    def add_step(self, step: StepRecord) -> int: ...
    def steps(self) -> list[StepRecord]: ...


class CatalogStore(Protocol):
    """Upstreams, their tools, and the names under which tools are exposed."""

    def load(self, upstreams: Sequence[tuple[str, str]]) -> list[tuple[UpstreamRecord, list[Tool]]]:
        """Return what is known of these upstreams (name, fingerprint), in this order, from one state of the store.

        An upstream that was never saved is left out. Tools come in the order in which the upstream listed them; each
        `id` is the name under which it was last exposed, which other settings may have changed since.
        """

    def records(self, upstreams: Sequence[tuple[str, str]]) -> list[UpstreamRecord]:
        """Return what `load` returns, without the tools."""

    def tools_after(self, upstream: str, fingerprint: str, name: str, most: int) -> list[tuple[int, Tool]]:
        """Return at most `most` tools of an upstream whose own names come after a name ("" for the start), in the order
        of these names, each behind its place in the list."""

    def tool_exposed(self, name: ToolId) -> list[tuple[str, Tool]]:
        """Return the tool that was given this exposed name, once for each fingerprint of its upstream, with that."""

    def named_after(self, upstream: str, fingerprint: str, name: str, most: int) -> list[tuple[int, ToolId, str, str]]:
        """Return place in the list, exposed name, own name and hash of at most `most` tools of an upstream that were
        given their names for good and whose own names come after a name, in the order of these names."""

    def changes(self) -> int | None:
        """Return a number that rises whenever a tool or an exposed name comes, goes or changes, whoever writes it; None
        where nobody counts."""

    def summary(self, inputs: str) -> bytes | None:
        """Return what was saved under `inputs`; None if anything that `changes` counts has changed since."""

    def save_summary(self, inputs: str, changes: int, summary: bytes) -> None:
        """Keep what a start has to know of all tools, made when `changes` was so high, and delete those that are
        outdated."""

    def tool_heads(self, upstreams: Sequence[tuple[str, str]], size: int) -> list[tuple[str, ToolId, str, bytes]]:
        """Return upstream, exposed name, own name and the first `size` bytes of the definition of every tool of these
        upstreams (name, fingerprint); for a caller who wants a few of very many tools."""

    def tools_named(self, tools: Iterable[tuple[str, str, str]]) -> list[Tool]:
        """Return the known ones of these tools (own name, upstream, fingerprint), in this order."""

    def save_upstream(self, upstream: UpstreamRecord, tools: Sequence[Tool]) -> None:
        """Replace what is known of an upstream and its tools (names are unique); earlier definitions are kept."""

    def save_in_steps(self, upstream: UpstreamRecord, tools: Sequence[Tool]) -> Iterator[None]:
        """Do the same in steps of some milliseconds, each with a transaction of its own; one of them puts the whole new
        list in the place of the old one. Whoever stops before it has changed nothing that anybody reads."""

    def changed_tools(self) -> set[tuple[str, str]]:
        """Return upstream and name of each tool that has had more than one definition."""

    def versions(self, upstream: str, name: str) -> list[ToolVersion]:
        """Return every definition that a tool has had, the oldest first."""

    def save_token_counts(self, tokens: Mapping[str, int]) -> None:
        """Keep token counts by schema hash, for every upstream with that definition; ignore unknown hashes."""

    def exposed_names(self) -> dict[ToolId, tuple[str, str]]:
        """Return every exposed name ever given, with the upstream and the tool's own name."""

    def exposed_names_after(self, place: int, most: int) -> list[tuple[int, ToolId, str, str]]:
        """Return at most `most` of the exposed names after a place, each behind its own, with upstream and name."""

    def save_exposed_names(self, names: Mapping[ToolId, tuple[str, str]]) -> dict[ToolId, tuple[str, str]]:
        """Keep names for ever; return those that another tool already has, with that tool: these were not saved.

        Two proxies with different settings may race; the first keeps the name, so its meaning never changes.
        """


class ApprovalStore(Protocol):
    """The definitions of servers that were approved, wait for a decision, or were refused.

    Several versions of one definition may be approved.
    """

    @property
    def version(self) -> int:
        """Rises with every decision; 0 before the first."""

    def decided_since(self, version: int) -> set[str]:
        """Return the servers about which something was decided after `version`."""

    def heads(
        self, server: str, kind: DefinitionKind, after: tuple[str, str] | None = None, most: int = -1
    ) -> list[DefinitionHead]:
        """Return the kept definitions of one kind of a server by name and hash; only those after a name and hash if
        given, and at most `most`, -1 for all."""

    def approved(self, server: str, kind: DefinitionKind, name: str = "") -> list[Definition]:
        """Return the approved versions of one definition, the newest approval first."""

    def add_first(self, definitions: Sequence[Definition]) -> bool:
        """Keep what was seen first of a server; return False and keep nothing if the server already has a definition of
        the kind of the first one. Two proxies may race; the first one decides what was seen first."""

    def add_first_in_steps(self, definitions: Sequence[Definition]) -> Generator[None, None, FirstSight]:
        """Do the same in steps of some milliseconds. Of many definitions the first comes last, which says that all are
        there.

        All of them are of one list, whatever happens meanwhile: what was written of another list, by a process that was
        killed or by one that still runs, is removed, except what somebody has decided about.
        """

    def approve_listed(self, definitions: Sequence[Definition]) -> None:
        """Approve definitions without a decision of the user; those that were blocked stay blocked."""

    def hold(self, server: str, kinds: Collection[DefinitionKind], definitions: Sequence[Definition]) -> None:
        """Replace what is held of these kinds of a server; what was approved or blocked meanwhile stays as it is."""

    def hold_in_steps(
        self, server: str, kinds: Collection[DefinitionKind], definitions: Sequence[Definition], name: str = ""
    ) -> Iterator[None]:
        """Do the same in steps of some milliseconds; whoever reads between two of them sees a part of it. `name`: the
        one definition that this is about, "" for all of these kinds."""

    def held(self, server: str | None = None) -> list[HeldHead]:
        """Return what is held, of one server or of all, by server, kind and name."""

    def undecided(self, server: str | None = None) -> list[Definition]:
        """Return what is held or blocked, of one server or of all, by server, kind and name."""

    def refused(self, kind: DefinitionKind) -> list[tuple[str, str, str]]:
        """Return server, exposed name and own name of each definition in whose place nothing is served."""

    def decide(self, definitions: Sequence[Definition], approval: Approval) -> list[Definition]:
        """Approve, block or hold exactly these versions, in one transaction; return those that are not kept any more.

        What the catalog keeps of the server follows in the same transaction: an approved definition takes the place of
        the one that was served, a blocked one is removed.
        """

    def note_shown(self, server: str, hashes: Collection[str]) -> None:
        """Keep which undecided definitions of a server somebody has looked at."""

    def shown(self, server: str) -> frozenset[str] | None:
        """Return the hashes that were looked at; None if nobody has looked since the last of them was decided."""

    def forget(self, server: str) -> None:
        """Delete everything of a server, so that its next list counts as the first."""


class ServingStore(Protocol):
    """What running proxies share: the list of each profile, and the state of their upstreams."""

    def working_set(self, key: str) -> WorkingSet | None: ...

    def save_working_set(self, working_set: WorkingSet) -> bool:
        """Replace the list of its key; return False if the store has this epoch or a later one, which then counts."""

    def save_state(self, state: UpstreamState) -> None: ...

    def tell_once(self, notice: str) -> bool:
        """Return whether this notice was never told to the users of this store; it counts as told from now on."""

    def states(self) -> list[UpstreamState]:
        """Return the states of every proxy that has not cleared them; a killed one does not, so check its pid."""

    def note_seen(self, machine: str, pid: int, at: float) -> None:
        """Keep in a proxy's states that it runs, for other machines, which cannot look at its process."""

    def clear_states(
        self, pid: int, upstream: str | None = None, started_at: float | None = None, machine: str = ""
    ) -> None:
        """Delete one proxy's states, or its state of one upstream; give `started_at` if the pid may be reused.

        A proxy does so when it ends, and when it starts: the system may have given it the pid of a dead one.
        """

    def failures(self) -> list[Failure]:
        """Return why servers could not be used when they were last tried, of all configs that share this store."""

    def save_failure(self, failure: Failure) -> None:
        """Keep why a server could not be used, in place of what was known of this entry."""

    def clear_failure(self, server: str, entry: str) -> None:
        """Delete what is known of this entry: the server works."""


class RetentionStore(Protocol):
    """How long records are kept."""

    def take_turn(self, now: float, until: int) -> bool:
        """Reserve pruning for one process until then; return False if another process has reserved it."""

    def touch_vectors(self, digests: Collection[bytes], now: float, before: float) -> None:
        """Note that the vectors of these texts, used last before some time, are still used; from any thread."""

    def scrub(self, most: int = 1_000_000) -> int:
        """Take secrets out of about `most` texts that an earlier version wrote, from any thread, each text once.

        Returns how many were looked at.
        """

    def prune(self, before: float, most: int = 1_000_000) -> int:
        """Delete about `most` older records, in small batches, from any thread; return how many rows were deleted.

        Counts of calls and misses, names of tools, approvals, models that were served and demonstrations stay.
        """


class ForgetStore(Protocol):
    """What a user wants to have forgotten."""

    def forget(self, selection: Selection, *, dry: bool = False) -> Forgotten:
        """Delete the selected records, all or none, and return what they were; with `dry` only return it.

        Names of tools and approvals stay. Vectors of the returned tasks are left to `VectorStore.forget`.
        """

    def compact(self) -> bool:
        """Remove every trace of what was deleted from the file and its log; return False if another process still uses
        the log, which then keeps traces until that process has ended."""


class FlowStore(Protocol):
    """Which tools' results came back as arguments of which other tools: names of fields, never values."""

    def add(self, seen: Mapping[FlowKey, int], at: float) -> None:
        """Add to the counts of flows; other proxies add to the same ones."""

    def all(self) -> list[Flow]:
        """Return all flows, the most frequent first."""


class VectorStore(Protocol):
    """Embeddings, by the encoder's key and the hash of the text."""

    def save(self, encoder: str, vectors: Mapping[bytes, bytes]) -> None:
        """Keep vectors by the hash of their text."""

    def load(self, encoder: str, digests: Collection[bytes]) -> dict[bytes, bytes]:
        """Return those of the wanted vectors that are kept; from any thread."""

    def missing(self, encoder: str, digests: Collection[bytes]) -> set[bytes]:
        """Return which of these texts this encoder has not embedded; from any thread."""

    def forget(self, digests: Collection[bytes]) -> int:
        """Delete the vectors of these texts, of every encoder; return how many there were."""

    def known(self, encoder: str) -> set[bytes]:
        """Return the hashes of all texts that this encoder has embedded."""


class WordingStore(Protocol):
    """How people word wishes, by the text of the tool that a language model was given; one answer for each text."""

    def save(self, wording: Wording) -> None:
        """Keep an answer, in place of earlier ones for the same text or the same tool."""

    def all(self) -> list[Wording]: ...

    def remove(self, server: str = "", model: str = "") -> int:
        """Delete the answers of one server or model, or all; return how many there were."""


class ArtifactStore(Protocol):
    """What was learned, as bytes with a checksum, and what it was learned from.

    Every trained model has one record; one that was not better than the served model keeps only its report. At most one
    model of a kind is active, which means served. Bytes whose checksum does not match are never returned.
    """

    @property
    def version(self) -> int:
        """Rises whenever other models are to be served, or a learning run has ended; 0 before the first."""

    def bump_version(self) -> None:
        """Make running proxies read the models again, and their lists begin a new epoch."""

    def add(
        self, kind: str, data: bytes, report: dict[str, Any], *, promote: bool, at: float | None = None
    ) -> Artifact:
        """Keep a model and serve it from now on if `promote`; otherwise keep only its report."""

    def active(self, kind: str) -> Artifact | None: ...
    def served(self) -> dict[str, Artifact]: ...

    def history(self, kind: str | None = None, limit: int = -1) -> list[Artifact]:
        """Return the models of one kind, or of all, the newest first."""

    def load_intact(self, kind: str) -> list[tuple[Artifact, bytes]]:
        """Return the served model and its predecessors whose bytes match their checksum, in the order to try them."""

    def retire(self, kind: str) -> None:
        """Serve no model of a kind any more, until one is promoted."""

    def roll_back(self, kind: str) -> tuple[Artifact, Artifact | None] | None:
        """Serve again the model that the served one had replaced.

        Returns the model put away, and the one served now (None if there was none before it). Returns None if no model
        of this kind is served.
        """

    def add_demonstrations(self, episodes: Sequence[Episode], at: float | None = None) -> int:
        """Keep imported episodes, each once; return how many were new."""

    def demonstrations(self) -> list[Episode]:
        """Return the imported episodes, in the order of their import."""

    def latest_demonstrations(self) -> Iterator[Episode]:
        """Yield the imported episodes, the one imported last first."""

    def count_demonstrations(self) -> int: ...


class Lead(AbstractContextManager["Lead"], Protocol):
    """The right to do one kind of work for a store. `take` it, and `release` it; the process's end does too.

    Whoever has it and loses the store has lost the lead as well; `is_held` then says so.
    """

    @property
    def is_held(self) -> bool:
        """Whether this object has the lead."""

    def take(self) -> bool:
        """Take the lead. Returns False if another process has it. Raises `StorageError` if none can be had."""

    def beat(self, doing: str) -> None:
        """Write down what is being done; at most every `BEAT_S` seconds."""

    def holder(self) -> Holder | None:
        """Return who has the lead; None if nobody has, or it cannot be told."""

    def release(self) -> None:
        """Let others take the lead."""

    def __exit__(self, *_: object) -> None:
        self.release()


class ReplicaStore(Protocol):
    """What the replicas of a proxy over HTTP share while they run. Nothing in it can be read by who has the database
    alone: texts of clients and servers are sealed by those who write them."""

    def save(self, session: LiveSession) -> int:
        """Keep a session, or what has changed of it; return its revision."""

    def find(self, ident: bytes) -> LiveSession | None: ...

    def set_reader(self, ident: bytes, reader: str, sender: str) -> None:
        """Note that a replica carries what belongs to no request of a session; with "", that `sender` no longer
        does."""

    def revision(self, ident: bytes) -> int:
        """Return which revision of a session is kept, 0 if none is."""

    def touch(self, idents: Sequence[bytes], at: float) -> None:
        """Note that sessions were used."""

    def end(self, ident: bytes) -> bool:
        """Forget a session and its events; return whether it was kept."""

    def clean_up(self, now: float, idle_s: float) -> None:
        """Forget old events and letters, and the sessions that nobody has used for so long (0: none)."""

    def keep_events(self, events: Sequence[LiveEvent]) -> None: ...

    def events(self, ident: bytes, stream: str, after: int) -> list[LiveEvent]:
        """Return the events of a stream after a number, the oldest first."""

    def post(self, letter: Letter) -> None:
        """Say something to other replicas."""

    def is_alive(self, replica: str) -> bool:
        """Tell whether a replica runs, as far as that can be known."""

    async def listen(self, replica: str, take: Callable[[Letter], None], changed: Callable[[str], None]) -> None:
        """Count as a replica that runs, and take letters, until cancelled. `changed` is told the tables that others
        have written: approvals, artifacts, working_sets; "" where any may have changed."""


class Store(AbstractContextManager["Store"], Protocol):
    """One open store, which closes at the end of its `with` block.

    One thread uses it, except for `checkpoint`; other processes open their own.
    """

    path: StorePlace | str
    """Where the store is; `places.local_file` says beside what other files stand that belong to it. ":memory:" for one
    in memory."""
    approvals: ApprovalStore
    artifacts: ArtifactStore
    audit: AuditStore
    browsing: BrowseStore
    calls: CallStore
    catalog: CatalogStore
    clients: ClientLedger
    costs: CostStore
    discoveries: DiscoveryStore
    exporting: ExportStore
    flows: FlowStore
    forgetting: ForgetStore
    grants: GrantStore
    retention: RetentionStore
    serving: ServingStore
    sessions: SessionStore
    tasks: TaskStore
    vectors: VectorStore
    wordings: WordingStore
    replicas: ReplicaStore | None
    """None where one machine alone can have the store."""

    atomic: Callable[[], AbstractContextManager[None]]
    """Write everything inside the block, or nothing; blocks nest, are short, and never await."""
    snapshot: Callable[[], AbstractContextManager[None]]
    """Read one state of the store inside the block, whatever other processes write meanwhile."""
    checkpoint: Callable[[], int]
    """Do the upkeep that would slow down later writes, from any thread; return the pages it could not move."""
    close: Callable[[], None]
    hide: Callable[[Callable[[], Known]], None]
    """Keep the secrets that this returns out of everything that is written from now on; see `storage.redaction`."""

    lead: Callable[[str], Lead]
    """Return the lead for a kind of work, by its name, which nobody has taken yet."""

    check: Callable[[], None]
    """Notice cheaply that the file was removed, replaced, or changed by a newer foretool."""
    reopen: Callable[[], bool]
    """Try to use the file again, from any thread; return whether it can be used."""

    @property
    def trouble(self) -> str:
        """Why the file cannot be used now, or ""; every method then raises a temporary `StorageError`.

        Only a store that was opened for serving gets into trouble; any other one raises what it finds.
        """

    @property
    def notice(self) -> str:
        """What to do about a file that can still be used, or ""."""

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether enough was written for a `checkpoint` to be worth a thread."""

    def statistics(self) -> Statistics: ...
