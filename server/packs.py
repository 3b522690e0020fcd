"""The packs, and what the core takes from each: named as text here, imported when a command or a setting asks for it.

The core imports no pack; a pack imports the core. A contract in `pyproject.toml` holds both.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from foretool.server.config.codes import Code
from foretool.server.config.errors import ConfigError

COMMANDS_OF_PACKS: Final[Mapping[str, str]] = {
    **{name: f"foretool.learning.commands.{name}" for name in ("learn", "enrich")},
    **{name: f"foretool.desk.commands.{name}" for name in ("page", "replay", "bench", "export")},
}
"""By the name of a command: the module that has it."""
SHOW_CONFUSED: Final = "foretool.desk.confusions:show_confusions"
"""Shows the tools that are taken for each other, for `foretool misses --confused`, and makes what tells them apart."""
SHOW_NEEDS: Final = "foretool.desk.dependencies:show_needs"
"""Shows which tools need the results of others, for `foretool tools --needs`."""
SHOW_STATS: Final = "foretool.desk.commands.stats:show_stats"
"""Shows misses, searches and tokens by day and client, for `foretool status --stats`."""
MAKE_PAGE: Final = "foretool.desk.page.gate:make_page"
"""Takes the config and returns the page for browsers that `serve --http` shows below `/ui`."""
PEOPLE: Final = "foretool.fleet.people.people:People"
"""Serves people who come with tokens of their own, given what it is to know of a proxy."""
PRINCIPAL_OF: Final = "foretool.fleet.people.issuer:principal_of"
"""Takes the issuer and the subject of a token, and returns the name of that person in records."""
GRANTS: Final = "foretool.fleet.people.grants:Grants"
"""What people have allowed foretool to do at servers."""
SHARE_SESSIONS: Final = "foretool.fleet.replicas.shared_sessions:share_sessions"
"""Takes the store and what hears of changed tables; returns the `SessionCarrier`, None for a store of one machine."""
WATCH: Final = "foretool.fleet.telemetry.watching:TelemetryWatch"
"""Takes the config and whether clients come over HTTP; returns the watcher that sends traces and metrics."""
MEASURE_FIXES: Final = "foretool.desk.replay.effect:measure_diagnosis"
"""Takes the app, why a tool was missed and seconds of the processor; returns the changes with what each does."""


class MissingPack(ConfigError):
    """What the config or the command line asks for is in a pack that is not installed."""

    def __init__(self, wanted: str, pack: str) -> None:
        """`wanted`: the command or the settings that need it."""
        problem = f"{wanted}: this installation lacks the part {pack}; install foretool again"
        super().__init__(problem, Code.SETTING_VALUE)


def import_from(module: str, wanted: str) -> Any:
    """Return a module of a pack for what is wanted. Raises `MissingPack`."""
    pack = ".".join(module.split(".")[:2])
    try:
        import_module(pack)
    except ModuleNotFoundError:
        raise MissingPack(wanted, pack) from None
    return import_module(module)


def require(name: str, wanted: str) -> Any:
    """Return a part of a pack for what is wanted. Raises `MissingPack`."""
    module, _, part = name.partition(":")
    return getattr(import_from(module, wanted), part)


def load_part(name: str) -> Any | None:
    """Return a part of a pack by the name of its module and its own, None if that pack is not installed."""
    try:
        return require(name, "")
    except MissingPack:
        return None
