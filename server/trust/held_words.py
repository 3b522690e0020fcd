"""What is held of a server, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from foretool.storage.records import Definition, DefinitionKind, HeldHead

Held = Sequence[Definition] | Sequence[HeldHead]


def why_held(server: str) -> str:
    """Say why a tool or a prompt is not served, and the way out."""
    return f"server {server!r} changed or added it, and only the user can approve that: foretool review {server}"


def count_held(held: Held) -> str:
    """Say what is held of a server, for example "30 tools changed, 2 tools new"."""
    nouns: dict[DefinitionKind, str] = {
        "tool": "tool", "prompt": "prompt", "prompt_text": "prompt text", "resource": "resource",
        "template": "resource template",
    }  # fmt: skip
    counts = Counter((each.kind, "new" if each.effect == "new" else "changed") for each in held)
    parts = [
        f"{count} {noun}{'s' if count > 1 else ''} {change}"
        for kind, noun in nouns.items()
        for change in ("changed", "new")
        if (count := counts[kind, change])
    ]
    for each in held:
        if each.kind == "instructions":
            parts.append(f"its instructions {'are new' if each.effect == 'new' else 'changed'}")
        elif each.kind == "launch":
            parts.append(f"its command {'is new' if each.effect == 'new' else 'changed'}")
    return ", ".join(parts)


def say_waiting(held: Iterable[HeldHead], servers: Collection[str]) -> dict[str, tuple[frozenset[str], str]]:
    """Return what waits of these servers: the hashes, and one line that says what it is and the way out."""
    by_server: dict[str, list[HeldHead]] = {}
    for each in held:
        if each.server in servers:
            by_server.setdefault(each.server, []).append(each)
    return {
        server: (
            frozenset(each.hash for each in found),
            f"{server}: {describe_held(found)}; see foretool review {server}",
        )
        for server, found in by_server.items()
    }


def describe_held(held: Held) -> str:
    """Say in one line what is held of a server, and what that means."""
    return f"{count_held(held)}; nobody has approved this, so it is not served"
