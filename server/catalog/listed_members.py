"""Reads what a server lists besides tools: prompts, resources and resource templates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretool.server.catalog.catalog import MAX_DEFINITION
from foretool.server.catalog.names import check_name
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.lists import PROMPTS, ListKind
from foretool.server.trust.links import clean_member
from foretool.server.trust.text import is_clean, one_line, visible
from foretool.storage.steps import Steps


def read_members(
    kind: ListKind, listed: Sequence[Raw], hide: Callable[[bytes], bytes]
) -> Steps[tuple[dict[str, Raw], list[str]]]:
    """Return in steps the usable members of a list by what they are asked for by, and what is wrong with the others.

    `hide` takes credentials out of a text.
    """
    members: dict[str, Raw] = {}
    problems: list[str] = []
    one = kind.noun[:-1]
    for position, member in enumerate(listed, 1):
        yield
        try:
            name, cleaned = _read_member(kind, member, hide)
        except ValueError as error:
            problems.append(f"{one} {position} was dropped: {error}")
            continue
        if name in members:
            problems.append(f"{one} {name!r} was listed twice; the first is used")
        members.setdefault(name, cleaned)
    return members, problems


def _read_member(kind: ListKind, member: Raw, hide: Callable[[bytes], bytes]) -> tuple[str, Raw]:
    """Return what a listed member is asked for by, and the member as it may leave us. Raises ValueError."""
    if len(member) > MAX_DEFINITION:
        raise ValueError(f"it is {len(member)} bytes long, over the limit of {MAX_DEFINITION}")
    name = jsonrpc.member(member, kind.identifier)
    if kind is PROMPTS:
        name = check_name(name)
    if not name:
        raise ValueError(f"it has no {kind.identifier}")
    if not is_clean(name):
        raise ValueError(f"its {kind.identifier} {one_line(visible(name))!r} has invisible characters")
    members = jsonrpc.fields(Raw(clean_member(hide(bytes(member)))))
    if kind is not PROMPTS:
        members[kind.identifier] = jsonrpc.raw(name)  # a URI stays what it is, or nobody could read what it names
    # Written again, so that no key stands there twice.
    return jsonrpc.text(members[kind.identifier]) or name, jsonrpc.raw(members)
