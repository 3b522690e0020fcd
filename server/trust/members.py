"""What of a listed prompt, resource, resource template or skill somebody has to approve, and what is served meanwhile.

A prompt or a template is approved as a whole. A resource is data, and new ones come all the time: its words (title,
description and whatever else a server may write) are approved, its address, size, type and date are not. A resource
that is new is served with its address and its name alone until its words are approved. A skill is approved with the
digests of its files, so each edit of one of them has to be approved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.lists import PROMPTS, RESOURCES, SKILLS, TEMPLATES, ListKind
from foretool.server.trust.text import clean_json
from foretool.storage.records import Definition, DefinitionKind

_LONG_NAME: Final = 100
"""Characters of a resource's name; what is longer says more than a name does, so it has to be approved."""
_MOST_LEVELS: Final = 200
"""Deeper members can be read in some places and not in others, where as much is already on the stack."""
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_NO_BRACKETS: Final = bytes({*range(256)} - {*b"{[]}"})
_LONG_NUMBER: Final = re.compile(rb"\d{1000}")
"""Python reads no number of more than 4,300 digits."""

_SIZE: Final = re.compile(rb"\d{1,15}")
_TYPE: Final = re.compile(rb'"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}(;\s?charset=[a-z0-9-]{1,20})?"', re.IGNORECASE)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d([T ][0-9:.]{4,20}(Z|[+-]\d\d:?\d\d)?)?")
_DATA: Final = {"size": _SIZE, "mimeType": _TYPE}
"""Members of a resource that say nothing in words, as long as they look like this."""


class MemberKind(NamedTuple):
    """How members of one kind of list are kept in the store of approvals."""

    definition: DefinitionKind
    first: DefinitionKind
    """Says that the server has listed them once."""


MEMBERS: Final[Mapping[ListKind, MemberKind]] = {
    PROMPTS: MemberKind("prompt", "prompt_list"),
    RESOURCES: MemberKind("resource", "resource_list"),
    TEMPLATES: MemberKind("template", "template_list"),
    SKILLS: MemberKind("skill", "skill_list"),
}


def lacking(capabilities: Iterable[str]) -> list[DefinitionKind]:
    """Return the definition kinds which record that a list was seen, for each list that a server lacks."""
    declared = set(capabilities)
    return [member.first for kind, member in MEMBERS.items() if kind.capability not in declared]


def words_to_approve(kind: ListKind, member: Raw, *, is_strict: bool) -> Raw | None:
    """Return the part of a listed member that somebody has to approve, None if there is none. `is_strict`: nothing is
    served that nobody has approved, not even an address."""
    if kind is not RESOURCES:
        return member
    words = _split(member)[0]
    is_bare = words.keys() <= {"uri", "name"} and len(jsonrpc.text(words.get("name")) or "") <= _LONG_NAME
    return None if is_bare and not is_strict else jsonrpc.raw(words)


def serve_member(kind: ListKind, member: Raw, listed: Definition, judged: Definition) -> Raw:
    """Return a member as it may be served: unchanged, or with the approved texts."""
    if judged is listed:
        return member
    if kind is not RESOURCES:
        return Raw(judged.value)
    return jsonrpc.raw({**jsonrpc.fields(judged.value), **_split(member)[1]})


def serve_bare(member: Raw) -> Raw:
    """Return a resource without its texts, which nobody has approved."""
    words, data = _split(member)
    name = jsonrpc.text(words.get("name")) or ""
    bare = {"uri": words["uri"], "name": words["name"] if 0 < len(name) <= _LONG_NAME else words["uri"]}
    return jsonrpc.raw({**bare, **data})


def stand_in(listed: Definition, approved: Definition) -> Definition | None:
    """Return what may be served in place of a changed member: the approved version, unless a prompt wants other
    arguments now. The files of a changed skill are no longer those that its approved version names."""
    if listed.kind == "skill":
        return None
    if listed.kind == "prompt" and not _prompt_fits(
        jsonrpc.decode_value(listed.value), jsonrpc.decode_value(approved.value)
    ):
        return None
    return replace(listed, value=approved.value, hash=approved.hash)


def _split(resource: Raw) -> tuple[dict[str, Raw], dict[str, Raw]]:
    """Return the words of a resource, and its data."""
    words = jsonrpc.fields(resource)
    data = {key: words.pop(key) for key, form in _DATA.items() if key in words and form.fullmatch(bytes(words[key]))}
    annotations = jsonrpc.plain_object(words.get("annotations"))
    if annotations is not None and all(_is_data(key, value) for key, value in annotations.items()):
        del words["annotations"]
        data["annotations"] = jsonrpc.raw(annotations)  # written again: a key may have stood there twice
    return words, data


def _is_data(key: str, value: object) -> bool:
    """Return whether an annotation says nothing in words."""
    match key, value:
        case "audience", list():
            return all(each in ("user", "assistant") for each in value)
        case "priority", int() | float():
            return True
        case "lastModified", str():
            return _DATE.fullmatch(value) is not None
    return False


def _prompt_fits(now: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether a prompt takes the arguments that it took before, and requires no others."""
    old, new = _prompt_arguments(before), _prompt_arguments(now)
    return old.keys() <= new.keys() and all(old.get(name, False) for name, required in new.items() if required)


def _prompt_arguments(prompt: Mapping[str, Any]) -> dict[str, bool]:
    listed = prompt.get("arguments")
    arguments = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return {str(each.get("name")): each.get("required") is True for each in arguments}


# Addresses that servers hand to clients: where a link leads, and which icons leave us.
#
# A link is opened by the user, who reads its host; an icon is fetched by the client without a question. So an icon is
# a picture in itself (`data:image/`) or stands at a public name under `https://` (specification 2026-07-28, icons).


_PICTURE: Final = re.compile(r"data:image/[a-z0-9.+-]+[;,]", re.IGNORECASE)
_PUBLIC: Final = re.compile(r"https://(?P<host>[a-z0-9._-]+\.[a-z][a-z0-9-]*)\.?(:\d+)?")
_LOCAL_NAME: Final = re.compile(r"(^|\.)(localhost|local|internal|home\.arpa|lan)$")


def link_place(url: str) -> str:
    """Return scheme, host and port of an address, in ASCII, so that no letter passes for another one. Raises ValueError
    for what is no `http://` or `https://` address, or could be read in two ways."""
    from urllib.parse import urlsplit  # takes milliseconds to import, and few servers send users anywhere

    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:  # also of a host that cannot be written in ASCII
        host = ""
    if not url.lower().startswith(("https://", "http://")) or not host or re.search(r"[\s\\\x00-\x20]", url):
        raise ValueError("expected a url that begins with https:// and names a host")
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def clean_member(member: bytes) -> bytes:
    """Return a listed member (a tool, prompt, resource or template) as it may leave us, the same object if it may leave
    as it is: without invisible characters, and without icons that lead elsewhere than to a picture.

    Raises ValueError as `clean_json` does, and for a number or a depth that not everybody could read.
    """
    cleaned = clean_json(member)
    if cleaned.count(b"{") + cleaned.count(b"[") > _MOST_LEVELS and _count_levels(cleaned) > _MOST_LEVELS:
        raise ValueError(f"it is nested deeper than {_MOST_LEVELS} levels")
    if _LONG_NUMBER.search(cleaned) is not None:
        _check_numbers(cleaned)
    # A key may be written in escapes: `"\\u0069cons"`.
    if b'"icons"' not in cleaned and b"\\u" not in cleaned:
        return cleaned
    members = jsonrpc.fields(Raw(cleaned))
    if "icons" not in members:
        return cleaned
    try:
        icons = jsonrpc.items(members["icons"])
    except ValueError:
        icons = []
    safe_icons = [icon for icon in icons if _is_safe(jsonrpc.member(icon, "src"))]
    if len(safe_icons) == len(icons) and icons:
        return cleaned
    del members["icons"]
    return jsonrpc.encode({**members, "icons": safe_icons} if safe_icons else members)


def _count_levels(member: bytes) -> int:
    brackets = _STRING.sub(b"", member).translate(None, _NO_BRACKETS)
    return max(accumulate(1 if each in b"{[" else -1 for each in brackets))


def _check_numbers(member: bytes) -> None:
    try:
        jsonrpc.decode_value(member)
    except ValueError:
        raise ValueError("it has a number of thousands of digits") from None


def _is_safe(source: str | None) -> bool:
    if source is None:
        return False
    if _PICTURE.match(source):
        return True
    try:
        place = link_place(source)
    except ValueError:
        return False
    # A number in any spelling is an address, and leads into this machine or its network as easily as out of it.
    written = _PUBLIC.fullmatch(place)
    return written is not None and _LOCAL_NAME.search(written["host"]) is None
