"""A change of the config, made in the text of the user's own file.

It is made in memory first, and that text is read as any config is. So a change means the same in a replay as in the
file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config.loader import Config, parse
from foretool.server.setup.documents import Keys
from foretool.server.setup.own_servers import OwnServers


class ConfigChange(Struct, frozen=True):
    """One value of the config that is to be another."""

    keys: Keys
    """From the top of the file; the first one is `foretool` or `servers`, whatever the file calls the servers."""
    value: Any
    adds: bool = False
    """The value is one more item of a list."""

    @property
    def text(self) -> str:
        """The change as `--set` takes it."""
        keys = self.keys[1:] if self.keys[0] == "foretool" else self.keys
        value = self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False)
        return f"{'.'.join(keys)}{'+=' if self.adds else '='}{value}"

    def make(self, own: OwnServers) -> None:
        """Make the change in the text of a file. Raises `DocumentError`."""
        first, *rest = self.keys
        keys = (own.key if first == "servers" else first, *rest)
        if self.adds:
            own.add_item(keys, str(self.value))
        else:
            own.set_value(keys, self.value)


def change_config(config: Config, own: OwnServers, changes: Sequence[ConfigChange]) -> Config:
    """Return the config that its file would be with these changes; `own` is changed with it. Raises `ConfigError` and
    `DocumentError`."""
    for each in changes:
        each.make(own)
    new = parse(own.text().encode(), own.path)
    return replace(new, settings=replace(new.settings, storage=config.settings.storage), named_by=config.named_by)
