"""The changes that would have shown a missed tool, and the buttons that make one and take it back.

The same functions do it as for `foretool misses NUMBER --fix` and `foretool misses --undo`.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from rich.text import Text

from foretool.desk.page.access import FormError
from foretool.desk.page.background import BackgroundCommand
from foretool.desk.replay.effect import measure_diagnosis
from foretool.server import offline
from foretool.server.commands.one_miss import PATIENCE_S
from foretool.server.config.loader import Config
from foretool.server.ledger.diffs import diff_lines
from foretool.server.ledger.fixes import Fix, FixProblem, MeasuredFix, MissDiagnosis, diagnose_miss, edit_config
from foretool.server.setup import changes
from foretool.server.setup.changes import ChangeError, NothingToUndoError
from foretool.server.setup.masking import mask_text
from foretool.server.setup.own_servers import OwnServers, copies_of, save_edit

_KEY_LENGTH: Final = 16
_KEPT: Final = 50
KEPT_S: Final = 30.0


class ShownFix(Struct, frozen=True):
    """One change, as the page shows it."""

    fix: Fix
    key: str
    """Names the change in a form; another change has another key."""
    lines: Sequence[Text]
    """What changes in the config file, without any secret."""
    measured: MeasuredFix | None
    """What it would have done to the tasks on record; None while that is not known."""

    @property
    def is_advised(self) -> bool:
        """Whether it helps as far as is known, and `foretool misses NUMBER --fix --yes` may make it."""
        measured = self.measured if self.measured is not None else MeasuredFix(self.fix, None, 0)
        return measured.is_made_unasked


class FixPage(Struct, frozen=True):
    """Why a tool was missed, and what can be done about it."""

    why: str
    """More exactly than the cause says; "" if the cause says it all."""
    tool: str
    listed_now: bool | None
    fixes: Sequence[ShownFix]
    """The best comes first. Those that do harm to the tasks on record are left out, and those that help none of them if
    another does."""
    work: BackgroundCommand | None
    """The trial of the changes; None if nobody has asked for it."""
    lifted: str = ""
    """Why nothing has to change any more, where what kept the tool away has ended; else ""."""

    @property
    def is_trying(self) -> bool:
        return self.work is not None and not self.work.is_over


class _Answer(Struct, frozen=True):
    """What the page reads of `foretool misses NUMBER --json`."""

    fixes: tuple[MeasuredFix, ...]


def try_fixes(config: Config, id: int) -> tuple[str, ...]:
    """Return the arguments of the foretool command that tries each change for a miss on the tasks on record."""
    return ("misses", str(id), "--json", f"--config={config.path}")


class _Found(Struct, frozen=True):
    """Why a tool was missed, and what each change would have done to as many tasks as there is time for."""

    diagnosis: MissDiagnosis
    measured: tuple[MeasuredFix, ...]


class Diagnoses:
    """Keeps what was found about the latest misses for `KEPT_S`: finding it takes some tenths of a second, and a page
    that waits for the trial of its changes asks each second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[object, int], tuple[float, _Found | None]] = OrderedDict()

    def read(self, config: Config, id: int) -> _Found | None:
        """Return why a tool was missed and what would have shown it; None if there is no such miss. Raises
        `StorageError`."""
        key, now = (config.stamp, id), self._clock()
        kept = self._kept.get(key)
        if kept is None or now - kept[0] > KEPT_S:
            kept = self._kept[key] = now, _diagnose(config, id)
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return kept[1]


def _diagnose(config: Config, id: int) -> _Found | None:
    with offline.open_offline(config) as app:
        if (miss := app.store.calls.miss(id)) is None:
            return None
        found = diagnose_miss(app, miss)
        changes_config = any(each.changes for each in found.fixes)
        return _Found(found, tuple(measure_diagnosis(app, found, PATIENCE_S)) if changes_config else ())


def read_fixes(config: Config, id: int, work: BackgroundCommand | None, diagnoses: Diagnoses) -> FixPage | None:
    """Return what can be done about a miss; None if there is no such miss. Raises `StorageError`."""
    read = diagnoses.read(config, id)
    if read is None:
        return None
    found = read.diagnosis
    tried = msgspec.json.decode(work.answer, type=_Answer).fixes if work and work.answer else read.measured
    measured = {key_of(each.fix): each for each in tried if not each.is_worse}
    if any(each.is_advised and each.effect is not None for each in measured.values()):
        measured = {key: each for key, each in measured.items() if not each.is_idle}
    order = list(measured)
    # What was tried and is not among these does the tasks on record harm, or helps none of them while another does.
    offered = [fix for fix in found.fixes if not tried or key_of(fix) in measured]
    shown = [_show(config, fix, measured.get(key_of(fix))) for fix in offered]
    shown.sort(key=lambda each: order.index(each.key) if each.key in measured else len(order))
    return FixPage(found.why, found.tool, found.listed_now, shown, work, found.lifted)


def key_of(fix: Fix) -> str:
    """Return the key by which a form names a change."""
    said = msgspec.json.encode([fix.kind, *(change.text for change in fix.changes)])
    return hashlib.sha256(said).hexdigest()[:_KEY_LENGTH]


def _show(config: Config, fix: Fix, measured: MeasuredFix | None) -> ShownFix:
    try:
        lines = _changed_lines(edit_config(config, fix)) if fix.changes else []
    except FixProblem:
        lines = []
    return ShownFix(fix, key_of(fix), lines, measured)


def _changed_lines(own: OwnServers) -> list[Text]:
    before, after = mask_text((own.before or b"").decode()), mask_text(own.text())
    return diff_lines(before.splitlines(), after.splitlines())


def make_fix(config: Config, id: int, key: str) -> str:
    """Make the change that a form names; return it in words. Raises `FormError`, and `StorageError`."""
    page = read_fixes(config, id, None, Diagnoses())
    chosen = next((each.fix for each in page.fixes if each.key == key), None) if page is not None else None
    if chosen is None:
        raise FormError("This change does not apply any more; open the miss again.")
    try:
        save_edit(edit_config(config, chosen), chosen.what, "misses")
    except (FixProblem, ChangeError) as error:
        raise FormError(f"Nothing was changed: {error}.") from None
    return chosen.what


def take_edit_back(config: Config) -> str:
    """Put the config back as it was before the latest edit; return in words what came of it. Raises `FormError`."""
    try:
        undone = changes.undo(copies_of(config.path))
    except NothingToUndoError:
        raise FormError("No earlier version of the config is kept, so there is nothing to take back.") from None
    except ChangeError as error:
        raise FormError(f"{error}.") from None
    return "; ".join([*(f"{each} is as it was before" for each in undone.restored), *undone.problems])
