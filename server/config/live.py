"""The config in force, which a reload replaces while the proxy runs."""

from __future__ import annotations

from foretool.server.config.loader import Config, Profile
from foretool.server.config.settings import Settings


class LiveConfig:
    """Holds the config in force. Collaborators keep this object and read the config through it."""

    def __init__(self, config: Config) -> None:
        self.now = config
        """The config in force; a reload sets another one."""

    @property
    def settings(self) -> Settings:
        return self.now.settings

    @property
    def keeps_text(self) -> bool:
        """Whether tasks and the names of arguments may be recorded."""
        return self.now.settings.record != "off"

    def redact(self, text: str) -> str:
        """Return the text without the secrets of any server."""
        return self.now.redact(text)

    def prefix(self, upstream: str) -> str:
        """Return what stands before `__` in the exposed names of an upstream; "" exposes its own names."""
        server = self.now.servers.get(upstream)
        return server.prefix if server is not None else upstream

    def profile(self, name: str) -> Profile:
        """Return a profile by name, or the one for everything when a reload has removed it."""
        return self.now.profiles.get(name, self.now.profiles[""])
