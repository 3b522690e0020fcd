"""Settings of a test as a file writes them: what is a constant for users stands under `limits`."""

from __future__ import annotations

from typing import Any

from foretool.server.config.settings import Limits


def write_settings(**settings: Any) -> dict[str, Any]:
    """Return the `foretool` block with these settings and limits. The few tools of a test would all fit the list, so
    lists are whole and filled only where a test says so, and name tools where they are filled or a test says so."""
    given = {"list_whole": False, "list_fill": False, "list_names": settings.get("list_fill", False), **settings}
    limits = {key: value for key in Limits.__struct_fields__ if (value := given.pop(key, None)) is not None}
    limits = {key: value for key, value in limits.items() if value != getattr(Limits(), key)}
    return {"encoder": "none", **given, **({"limits": limits} if limits else {})}
