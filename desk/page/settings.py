"""The settings as they are in force, without any secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from foretool.desk.page.viewers import Viewer
from foretool.server.config.loader import Config, Profile
from foretool.server.config.settings import Settings, keys_of

_SECRET: Final = frozenset({"token", "tokens", "encoder_key", "encoder_url", "enrich"})
"""Settings whose values stay out of the page."""
_OWN: Final = ("servers", "pin", "policy", "list_tokens", "about", "allow", "deny")
"""What a profile decides."""


class SettingRow(Struct, frozen=True):
    name: str
    value: str
    is_default: bool


class SettingsPage(Struct, frozen=True):
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
        for field in _OWN
    ]


def _row(name: str, value: Any, default: Any, config: Config) -> SettingRow:
    if name in _SECRET:
        return SettingRow(name, "set; not shown" if value else "not set", not value)
    return SettingRow(name, config.secrets.redact(_write(value)), value == default)


def _write(value: Any) -> str:
    if value is None:
        return "(not set)"
    if isinstance(value, str):
        return value or "(empty)"
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        return ", ".join(value) or "(none)"
    return msgspec.json.encode(value).decode()
