"""The lists of a server: how each is asked for, how its members are, and what says that it has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from foretool.server.protocol import skills


class ListKind(NamedTuple):
    """One of the lists that a server may have."""

    key: str
    """The member of an answer that holds the list."""
    method: str
    capability: str
    """What a server declares that has such a list."""
    identifier: str
    """The member by which clients ask for what is listed."""
    noun: str
    """What is listed, in the plural."""
    listens: str
    """Its filter in `subscriptions/listen`."""
    change: str
    """The notification that says that it has changed; "" if there is none."""


TOOLS: Final = ListKind(
    "tools", "tools/list", "tools", "name", "tools", "toolsListChanged", "notifications/tools/list_changed"
)
PROMPTS: Final = ListKind(
    "prompts", "prompts/list", "prompts", "name", "prompts", "promptsListChanged", "notifications/prompts/list_changed"
)
RESOURCES: Final = ListKind(
    "resources", "resources/list", "resources", "uri", "resources", "resourcesListChanged",
    "notifications/resources/list_changed",
)  # fmt: skip
TEMPLATES: Final = ListKind(
    "resourceTemplates", "resources/templates/list", "resources", "uriTemplate", "resource templates",
    "resourcesListChanged", "notifications/resources/list_changed",
)  # fmt: skip

SKILLS: Final = ListKind("skills", "skills/list", skills.EXTENSION, "uri", "skills", "", "")

MERGED: Final = (PROMPTS, RESOURCES, TEMPLATES, SKILLS)
"""The lists that clients get as the servers have them, all in one. Tools are chosen for each client."""
LISTS: Final = (TOOLS, *MERGED)


def features(capabilities: Mapping[str, Any] | None) -> set[str]:
    """Return the capabilities and the extensions that a server declares."""
    declared = capabilities or {}
    extensions = declared.get("extensions")
    return {*declared, *(extensions if isinstance(extensions, dict) else ())}
