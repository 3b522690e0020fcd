"""Works out what a proxy would show and find, from the config and the store, without starting anything.

It builds the same `App` as serving does, but writes nothing and starts no upstream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct

from foretool.server.app import App
from foretool.server.catalog.catalog import Catalog
from foretool.server.config.loader import Config, Profile
from foretool.server.config.servers import matches
from foretool.server.config.variables import is_pattern
from foretool.server.lists.maker import View
from foretool.server.trust.approvals import review_command
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Policy, Tool
from foretool.storage.store import Store


@contextmanager
def open_offline(config: Config) -> Iterator[App]:
    """Build an application that only reads the store of a config. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        yield App(config, store)


def view(app: App, profile: Profile) -> View:
    """Return the list that the next client of a profile gets. Under `auto` it is the list that every client starts
    with."""
    policy: Policy = "frozen" if profile.policy == "auto" else profile.policy
    return app.lists.foresee(profile, policy)


def suggest_names(app: App, name: str) -> str:
    """Return "; did you mean" with the names closest to an unknown one, or ""."""
    close = app.catalog.meanings.near(name)
    return f"; did you mean {', '.join(close)}?" if close else ""


def find_waiting(app: App) -> list[tuple[str, str]]:
    """Return server and exposed name of each tool that waits for the user and of which no earlier version is served."""
    held = {(each.server, each.name) for each in app.store.approvals.held() if each.kind == "tool"}
    refused = app.store.approvals.refused("tool")
    return sorted(
        {
            (server, exposed)
            for server, exposed, own in refused
            if (server, own) in held and server in app.config.servers
        }
    )


def why_unserved(app: App, name: str) -> str:
    """Say why a tool that is or was there is not served by a name, and what to do; "" if nobody knows of such a one."""
    for server, exposed, own in app.store.approvals.refused("tool"):
        if name in (exposed, own) or (is_pattern(name) and matches(exposed, (name,))):
            return f"{name!r} of server {server!r} waits for your approval (denied); {review_command(server)} shows it"
    if (gone := app.catalog.meanings.why_gone(name)) is not None:
        return f"{name!r} cannot be called ({gone.cause}): {gone.change}"
    unlisted = sorted(app.upstreams.unlisted())
    if any(name.startswith(f"{server}__") for server in unlisted):
        server = name.partition("__")[0]
        if (failure := app.upstreams.failure(server)) is not None:
            return f"server {server!r} does not work (offline): {failure.reason}"
        return f"the tools of server {server!r} are not known (offline); foretool doctor says why"
    return ""


def say_unknown(app: App, name: str) -> str:
    """Say that no tool is called so, or why it is not served, and what to do."""
    if why := why_unserved(app, name):
        return why
    meant = suggest_names(app, name) or "; foretool tools lists them"
    return f"no tool is called {name!r} (unknown){meant}"


class ReadWordings(Struct, frozen=True):
    """The wordings with which searches read a tool."""

    texts: tuple[str, ...]
    model: str
    """Who made them; "" where they come with foretool."""

    @property
    def origin(self) -> str:
        """Where they are from, in words that go on after "wordings"."""
        return f"made by {self.model}" if self.model else "that come with foretool"


def find_wordings(catalog: Catalog, store: Store, tool: Tool, *, with_shipped: bool) -> ReadWordings | None:
    """Return what searches read beside a tool's own words: what a model has answered about the tool as it is now, or
    else what comes with foretool."""
    # Not at the top: most commands look up no wordings.
    from foretool.retrieval import known_tools
    from foretool.retrieval.corpus import digest
    from foretool.retrieval.document import document, embedded_text

    read = document(tool, catalog.texts.about(tool.upstream))
    key = digest(embedded_text(read))
    if found := next((each for each in store.wordings.all() if each.digest == key and each.texts), None):
        return ReadWordings(found.texts, found.model)
    shipped = known_tools.shipped_wordings(read) if with_shipped else ()
    return ReadWordings(shipped, "") if shipped else None
