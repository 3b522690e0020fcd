"""The settings as they are in force, without any secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from foretool.desk.page.access import Viewer
from foretool.desk.page.background import BackgroundCommand
from foretool.desk.page.forms import Form, FormError, first
from foretool.desk.replay.changes import ChangeProblem, read_changes
from foretool.desk.replay.effect import Recorded
from foretool.server.config.loader import Config, Profile
from foretool.server.config.settings import Settings, keys_of
from foretool.server.ledger.effects import Effect

SECRET: Final = frozenset({"token", "tokens", "encoder_key", "encoder_url", "enrich"})
"""Settings whose values stay out of the page."""
OWN: Final = ("servers", "pin", "policy", "list_tokens", "about", "allow", "deny")
"""What a profile decides."""


class SettingRow(Struct, frozen=True):
    """One setting."""

    name: str
    value: str
    is_default: bool


class SettingsPage(Struct, frozen=True):
    """What is in force."""

    path: str
    """The config file; "" to somebody who may see one profile alone."""
    storage: str
    rows: Sequence[SettingRow]
    profiles: Sequence[tuple[str, Sequence[SettingRow]]]
    tokens: Sequence[tuple[str, str]]
    """The name of each token of `serve --http`, and the profiles that it opens."""


def read_settings(config: Config, viewer: Viewer) -> SettingsPage:
    """Return the settings that a viewer may see."""
    profiles = [
        (name or "default", _of_profile(profile, config.profiles[""]))
        for name, profile in config.profiles.items()
        if viewer.sees_all or name == viewer.profile
    ]
    if not viewer.sees_all:
        return SettingsPage("", "", (), profiles, ())
    defaults = Settings()
    rows = [
        _row(field, getattr(config.settings, field), getattr(defaults, field), config)
        for field in keys_of(Settings)
        if field not in ("profiles", "storage", "tokens")
    ]
    tokens = [(entry.name, ", ".join(entry.profiles)) for entry in config.settings.tokens]
    return SettingsPage(str(config.path), str(config.storage), rows, profiles, tokens)


def _of_profile(profile: Profile, general: Profile) -> list[SettingRow]:
    return [
        SettingRow(field, _write(getattr(profile, field)), getattr(profile, field) == getattr(general, field))
        for field in OWN
    ]


def _row(name: str, value: Any, default: Any, config: Config) -> SettingRow:
    if name in SECRET:
        return SettingRow(name, "set; not shown" if value else "not set", not value)
    return SettingRow(name, config.secrets.redact(_write(value)), value == default)


def _write(value: Any) -> str:
    if isinstance(value, str):
        return value or "(empty)"
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        return ", ".join(value) or "(none)"
    return msgspec.json.encode(value).decode()


# The form that tries other settings on the tasks on record, and its answer: `foretool replay` in the background.


TIMES: Final[Mapping[str, str]] = {"1d": "last day", "7d": "last 7 days", "30d": "last 30 days", "90d": "last 90 days"}
TASKS: Final = 1000
"""How many tasks are played at most, the latest ones."""
MOST: Final = 20
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
    if len(changes) > MOST:
        raise FormError(f"Try at most {MOST} changes together.")
    try:
        read_changes(changes, config)
    except ChangeProblem as error:
        raise FormError(f"{error}.") from None
    since = first(form, "since")
    return (
        "replay", "--json", f"--config={config.path}", f"--since={since if since in TIMES else '7d'}",
        f"--tasks={TASKS}", *(f"--set={change}" for change in changes),
    )  # fmt: skip


def read_replay(work: BackgroundCommand) -> ReplayPage:
    """Return a replay with its answer, as far as it has one."""
    answer = msgspec.json.decode(work.answer, type=PrintedReplay) if work.answer is not None else None
    return ReplayPage(work, answer)
