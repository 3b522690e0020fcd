"""The form that tries other settings on the tasks on record, and its answer: `foretool replay` in the background."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from foretool.desk.page.access import Form, FormError, first
from foretool.desk.page.background import BackgroundCommand
from foretool.desk.replay.changes import ChangeProblem, read_changes
from foretool.desk.replay.effect import Recorded
from foretool.server.config.loader import Config
from foretool.server.ledger.effects import Effect

TIMES: Final[Mapping[str, str]] = {"1d": "last day", "7d": "last 7 days", "30d": "last 30 days", "90d": "last 90 days"}


_TASKS: Final = 1000
"""How many tasks are played at most, the latest ones."""


_MOST: Final = 20
"""How many changes one replay tries."""


_FEW: Final = 20
"""With fewer tasks the intervals say little."""


class PrintedReplay(Struct, frozen=True):
    """What `foretool replay --json` prints."""

    changes: tuple[str, ...]
    verdict: str
    recorded: Recorded
    effect: Effect


class ReplayPage(Struct, frozen=True):
    """One replay that was asked for."""

    work: BackgroundCommand
    answer: PrintedReplay | None
    few: int = _FEW


def replay_arguments(config: Config, form: Form) -> tuple[str, ...]:
    """Return the arguments of the command that a form asks for. Raises `FormError` if a change cannot be read."""
    changes = [f"{name}={value}" for name in ("list_tokens", "policy") if (value := first(form, name).strip())]
    changes += [f"pin+={name.strip()}" for name in first(form, "pin").split(",") if name.strip()]
    changes += [line.strip() for line in first(form, "more").splitlines() if line.strip()]
    if len(changes) > _MOST:
        raise FormError(f"Try at most {_MOST} changes together.")
    try:
        read_changes(changes, config)
    except ChangeProblem as error:
        raise FormError(f"{error}.") from None
    since = first(form, "since")
    return (
        "replay", "--json", f"--config={config.path}", f"--since={since if since in TIMES else '7d'}",
        f"--tasks={_TASKS}", *(f"--set={change}" for change in changes),
    )  # fmt: skip


def read_replay(work: BackgroundCommand) -> ReplayPage:
    """Return a replay with its answer, as far as it has one."""
    answer = msgspec.json.decode(work.answer, type=PrintedReplay) if work.answer is not None else None
    return ReplayPage(work, answer)
