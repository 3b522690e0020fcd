"""Shows on the page which texts of servers wait for a decision, and carries out the decision that a form sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct
from rich.text import Text

from foretool.desk.page.access import Form, FormError, first
from foretool.server.config.loader import Config
from foretool.server.ledger.diffs import diff_definitions
from foretool.server.ledger.review import (
    EFFECTS,
    Batch,
    DefinitionChange,
    choose_changes,
    diff_change,
    list_waiting,
    name_change,
    read_batch,
)
from foretool.server.ledger.review import (
    decide as decide_changes,
)
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Approval, Person

_MOST_LINES: Final = 200
"""Lines of one difference that are shown."""
_DECISIONS: Final[Mapping[str, Approval]] = {"approve": "approved", "block": "blocked"}


class ShownChange(Struct, frozen=True):
    """One change, with what a person needs to decide."""

    change: DefinitionChange
    name: str
    effect: str
    lines: Sequence[Text]
    more: int
    """Lines that are left out."""
    is_suspect: bool
    """Something in it looks wrong; it is not ticked for the user."""


class ReviewPage(Struct, frozen=True):
    """What waits of one server, and what was blocked of it."""

    batch: Batch
    held: Sequence[ShownChange]
    blocked: Sequence[ShownChange]
    launch: Sequence[Text]
    """How its command in the config differs from the one before, if that changed."""


def read_all(config: Config) -> list[Batch]:
    """Return what waits, by server. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        return [read_batch(config, store, server) for server in list_waiting(config, store)]


def read_one(config: Config, server: str) -> ReviewPage | None:
    """Return what waits of one server; None if there is no such server. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        if server not in config.servers and not store.approvals.undecided(server):
            return None
        batch = read_batch(config, store, server)
    shown = [_show(each) for each in batch.changes]
    return ReviewPage(
        batch,
        [each for each in shown if each.change.state == "held"],
        [each for each in shown if each.change.state == "blocked"],
        diff_definitions(batch.earlier_launch.encode(), batch.launch.encode()) if batch.earlier_launch else [],
    )


def _show(change: DefinitionChange) -> ShownChange:
    lines = diff_change(change)
    suspect = any(finding.severity != "low" for finding in change.findings)
    more = max(len(lines) - _MOST_LINES, 0)
    return ShownChange(change, name_change(change), EFFECTS[change.effect], lines[:_MOST_LINES], more, suspect)


def decide_by_form(config: Config, server: str, form: Form, by: Person) -> str:
    """Approve or block what a form names by hash; return what came of it, as a query. Raises `FormError`.

    Whoever approves a tool approves the command of its server too; so that command has to be one that was shown.
    """
    decision = _DECISIONS.get(first(form, "decision"))
    if decision is None:
        raise FormError("The form has no decision; press Approve or Block.")
    chosen, shown = set(form.get("change", ())), set(form.get("shown", ()))
    with open_existing_store(config.storage) as store:
        batch = read_batch(config, store, server)
        if decision == "approved" and chosen:
            launches = {each.hash for each in batch.held if each.kind == "launch"}
            if not launches <= shown:
                raise FormError(f"The command of {server} has changed since you looked; open its review again.")
            chosen |= launches
        known = choose_changes(batch, chosen)
        done, gone = decide_changes(store, batch, known, decision, by)
    left = len(gone) + len(chosen) - len(known)
    return urlencode({"done": decision, "count": len(done), "left": left})


def say_done(query: Mapping[str, str]) -> str:
    """Return in words what a decision did; "" if the address tells of none."""
    done, count, left = query.get("done", ""), query.get("count", ""), query.get("left", "")
    if done not in _DECISIONS.values() or not (count.isdecimal() and left.isdecimal() and len(count + left) < 12):
        return ""
    said = f"{int(count):,} {done}." if int(count) else "Nothing was ticked, so nothing was decided."
    if int(left):
        return f"{said} {int(left):,} changed meanwhile and wait again."
    return said
