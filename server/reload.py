"""Follows a config file that changes while the proxy runs: only the servers whose entries changed are touched."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from foretool.server.catalog.catalog import Catalog
from foretool.server.clients.registry import Announcements, ClientRegistry
from foretool.server.config.errors import ConfigError, RefusedConfig
from foretool.server.config.files import ConfigPlace
from foretool.server.config.loader import Config, LiveConfig, diff, load_again, stamp
from foretool.server.config.servers import same_connection
from foretool.server.config.tokens import all_tokens
from foretool.server.config.variables import BASIC_NAMES, CREDENTIAL
from foretool.server.system import logs
from foretool.server.upstreams.launcher import Launcher

log = logging.getLogger("foretool.app")


class Reloader:
    """Puts a changed config in force."""

    def __init__(
        self, config: LiveConfig, launcher: Launcher, catalog: Catalog, clients: ClientRegistry,
        announcements: Announcements, followers: Sequence[Callable[[], None]], subscribe: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`followers` are called when settings have changed, after the config is in force. `subscribe` subscribes a
        server that was added or restarted to what clients want to hear of it."""
        self._config = config
        self._launcher = launcher
        self._catalog = catalog
        self._clients = clients
        self._announcements = announcements
        self._followers = list(followers)
        self._subscribe = subscribe
        self._stamp = config.now.stamp
        self._applied = config.now
        """The last config of which everything is in force."""
        self._looking = asyncio.Lock()
        self.refused: RefusedConfig | None = None
        """Why the file as it is now cannot be used; None where it can."""

    def add_follower(self, follow: Callable[[], None]) -> None:
        """Add a callback for changed settings, called before those that were added earlier."""
        self._followers.insert(0, follow)

    def has_changed(self) -> bool:
        """Return whether the file was written since it was last read."""
        now = stamp(self._config.now.path)
        return now is not None and now != self._stamp

    async def look(self) -> None:
        """Read the file again if it has changed; a broken one is logged and changes nothing. What raises is done again
        at the next look."""
        async with self._looking:
            if not self.has_changed():
                return
            found = stamp(self._config.now.path)
            try:
                new = load_again(self._config.now)
            except ConfigError as error:
                log.error("%s; the config before it stays in force", error)
                since = self.refused.since if self.refused is not None else time.time()
                self.refused = RefusedConfig(str(error), error.code, since)
            else:
                await self.apply(new)
                self.refused = None
            self._stamp = found

    async def apply(self, new: Config) -> None:
        """Put a config in force: add, remove and restart only the servers whose entries changed."""
        old = self._applied
        changes = diff(old, new)
        self._config.now = new
        logs.reload_logging(new)
        report_problems(new)
        report_risks(new)
        if changes.settings_changed:
            for follow in self._followers:
                follow()
        restarted = [
            name
            for name in changes.changed
            if name in old.servers and name in new.servers and not same_connection(old.servers[name], new.servers[name])
        ]
        # What was added is there where this is done again.
        await self._launcher.remove([*changes.removed, *restarted, *changes.added])
        kept = [new.servers[name] for name in changes.changed if name in new.servers and name not in restarted]
        self._catalog.configure(list(new.servers.values()), new.prefixes, new.broken)
        added = [new.servers[name] for name in (*changes.added, *restarted) if name in new.servers]
        first = next(iter(self._clients), None)
        self._launcher.add(added, first.era if first is not None else None)
        for server in added:
            self._subscribe(server.name)
        self._clients.set_levels()
        self._launcher.update(kept)
        log.info(
            "config reloaded: servers: %d added, %d removed, %d changed%s",
            len(changes.added), len(changes.removed), len(changes.changed), _say_tokens(old, new),
        )  # fmt: skip
        self._announcements.soon()
        self._applied = new


def _say_tokens(old: Config, new: Config) -> str:
    """Say which tokens of `serve --http` were added and removed; "" where none was. One whose entry has changed counts
    as both."""
    before, now = ({each: each.name or "(unnamed)" for each in all_tokens(config.settings)} for config in (old, new))
    added = [name for entry, name in now.items() if entry not in before]
    removed = [name for entry, name in before.items() if entry not in now]
    said = [f"{len(each)} {what} ({_some(each)})" for what, each in (("added", added), ("removed", removed)) if each]
    return f"; tokens: {', '.join(said)}" if said else ""


def report_place(config: Config) -> None:
    """Log which file is served, and which one is not read."""
    log.info("config: %s (%s)", config.path, config.named_by)
    if config.ignored is not None:
        log.warning("%s", ConfigPlace(config.path, config.named_by, config.ignored).notice)


def report_risks(config: Config) -> None:
    """Log what others could read or change."""
    from foretool.server.config.risks import find_risks  # no start waits for it

    for risk in find_risks(config):
        if risk.severity == "warning":
            log.warning("%s; %s", risk.what, risk.do)


def report_small_environment(config: Config, environ: Mapping[str, str]) -> None:
    """Log what servers no longer get since this version, and which of them it may concern."""
    concerned = [server.name for server in config.servers.values() if server.type == "stdio" and not server.inherit]
    given = {*BASIC_NAMES, *(name for server in config.servers.values() for name in server.env)}
    secret = sorted(name for name in environ if CREDENTIAL.search(name) and name not in given)
    if concerned:
        held_back = f" Set here and no longer given: {_some(secret)}." if secret else ""
        log.warning(
            'since this version a server gets only %s, its "env", and the variables that its "inherit" names, and it'
            ' starts in the folder of the config.%s If one of %s fails, `foretool doctor` says what to add',
            ", ".join(BASIC_NAMES), held_back, _some(concerned),
        )  # fmt: skip


def _some(names: Sequence[str], most: int = 8) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def report_problems(config: Config) -> None:
    """Log what is wrong with single servers and what was not understood."""
    for warning in config.warnings:
        log.warning("%s", warning)
    for problem in config.broken.values():
        log.error("%s; the other servers are served", problem)
