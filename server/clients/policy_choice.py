"""Which policy `auto` chooses for a client: what was measured of its name and version, and until then what is believed.

A name is only the first belief. One growing attempt measures a client that nobody has seen, and its result outranks
the name. A new version of a client is measured again.
"""

from __future__ import annotations

from typing import Final

from foretool.server.config.settings import PolicyChoice
from foretool.storage.records import ClientRecord, Era, Policy

RELISTERS: Final = frozenset({
    "claude-code", "copilot-cli", "gemini-cli-mcp-client", "opencode", "mcp-use", "goose", "windsurf",
})  # fmt: skip
"""Clients known to list again after `list_changed` within the turn (docs/clients.md has the sources), until the ledger
knows better."""

RELIST_SHARE: Final = 0.5
"""A list grows only for clients that list again after at least this share of the announcements they get."""

TRIES: Final = 3
"""How often a client is tried. The first attempt that gives a result is the last; an attempt gives none if the client
leaves before it gets the answer that waits for it."""

SCHEDULED: Final = 0.1
"""A list counts as an answer to an announcement only if the client's own schedule brings one so soon with at most this
chance."""

SCHEDULE: Final = 2
"""A client that listed so often without being told to may have a schedule of its own."""


def relist_share(record: ClientRecord | None) -> float | None:
    """Return the share of announcements after which a client listed again, lately; None if none was measured."""
    if record is None or not record.announced:
        return None
    if record.recent:
        return record.recent.count("1") / len(record.recent)
    return record.relisted / record.announced


def choose_policy(wanted: PolicyChoice, era: Era, client: str, ledger: ClientRecord | None) -> Policy:
    """Return the policy of one client. `auto` grows lists only for legacy clients that list again when told."""
    if wanted != "auto":
        # A growing list violates a MUST NOT of the modern specification, so `auto` never chooses it there.
        return wanted
    if era == "modern":
        return "frozen"
    share = relist_share(ledger)
    if share is not None:
        return "growing" if share >= RELIST_SHARE else "frozen"
    return "growing" if client.lower() in RELISTERS else "frozen"


def is_worth_a_try(wanted: PolicyChoice, era: Era, client: str, ledger: ClientRecord | None) -> bool:
    """Tell whether the list of a client may grow once to see whether the client lists again."""
    if choose_policy(wanted, era, client, ledger) != "frozen" or wanted != "auto" or era == "modern":
        return False
    return relist_share(ledger) is None and (ledger is None or ledger.tries < TRIES)


def is_scheduled(delay_s: float, unasked: int, watched_s: float) -> bool:
    """Tell whether a list may come from the client's own schedule and not from the announcement.

    `delay_s`: how long after the announcement it came. `unasked`: how many lists the client asked for without being
    told to, in the `watched_s` seconds between its first list and the announcement.
    """
    return unasked >= SCHEDULE and delay_s * unasked > SCHEDULED * watched_s


def explain_policy(record: ClientRecord) -> str:
    """Say why `auto` treats a client as it does."""
    share = relist_share(record)
    if record.era == "modern":
        rule = "its protocol forbids lists that grow on request"
        return rule if share is None else f"{rule} (when told of a change, it {_describe(share)})"
    if share is not None:
        return f"when told of a change, it {_describe(share)}"
    if record.client.lower() in RELISTERS:
        return "not measured yet; clients of this name are known to list again"
    if record.tries >= TRIES:
        return f"not measured: it left too soon, {record.tries} times"
    return "not measured yet; its next search will show"


def _describe(share: float) -> str:
    if share == 1.0:
        return "lists again"
    return f"lists again {share:.0%} of the time" if share else "does not list again"
