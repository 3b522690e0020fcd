"""Who looks at the page: what they may see, and whether they may change anything.

Whoever lets a request in (`access.Door`, or the gate of `serve --http`) puts a `Viewer` into its ASGI scope. A request
without one is refused.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from starlette.requests import Request

from foretool.server.config.loader import Config
from foretool.server.system.processes import own_person
from foretool.server.trust.policy import Reach
from foretool.storage.records import Person

VIEWER: Final = "foretool.viewer"
"""The key in the ASGI scope."""


class Viewer(Struct, frozen=True):
    """One browser that was let in."""

    form_key: str
    """Every form that changes something carries it, so that no other site can send one."""
    profile: str | None = None
    """Only what belongs to this profile is shown; None shows everything."""
    may_decide: bool = True
    """Whether the buttons that change something are there and work."""

    principal: str = ""
    name: str = ""
    """Who it is: the owner of a token; "" for the user who runs the page."""

    @property
    def person(self) -> Person:
        """Return who it is, for what they decide."""
        return Person(self.principal, self.name) if self.principal else own_person()

    @property
    def sees_all(self) -> bool:
        return self.profile is None


def viewer_of(request: Request) -> Viewer:
    """Return who sent a request. Raises `KeyError` if nobody has let it in."""
    viewer: Viewer = request.scope[VIEWER]
    return viewer


def admits(config: Config, viewer: Viewer, server: str) -> bool:
    """Tell whether a viewer may see the tools of a server."""
    if viewer.profile is None:
        return True
    profile, found = config.profiles.get(viewer.profile), config.servers.get(server)
    if found is not None and found.per_user is not None:
        return False  # what it lists to one person of the profile, it lists to nobody else
    return profile is not None and Reach(profile, config.servers, config.settings).admits(server)
