"""The Skills extension (SEP-2640, `io.modelcontextprotocol/skills`): the entries of skills, and their URIs behind us.

A skill is a folder of files that a server offers as resources, with `SKILL.md` at its root. A URI of a skill holds for
its server alone, so the prefix of the server stands in front, as it does in names of tools:

    at server github                     behind us
    skill://refunds/SKILL.md             skill://github/refunds/SKILL.md
    repo://me/work/refunds/SKILL.md      skill://github/repo:/me/work/refunds/SKILL.md

A server without a prefix keeps its URIs, unless one of them looks like another server's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

from msgspec import Struct

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw

EXTENSION: Final = "io.modelcontextprotocol/skills"
MAIN: Final = "SKILL.md"
"""The file at the root of each skill."""
_DYNAMIC: Final = "dynamic"
"""Stands in place of the files of a skill whose content nobody can know beforehand."""
MOST_FILES: Final = 512
MOST_BYTES: Final = 16 * 1024 * 1024
"""What a host has to take of one skill: files, and bytes of all of them (specification: limits)."""
_FOLDER_TYPE: Final = "inode/directory"

_SCHEME: Final = "skill://"
_MOST_URI: Final = 1024
_MOST_DESCRIPTION, _MOST_COMPATIBILITY = 1024, 500
"""Characters (Agent Skills specification)."""
_uri = re.compile(r"([a-z][a-z0-9+.-]*)://([^/?#:\s]+)(?:/[^?#\s]*)?", re.IGNORECASE)
_name = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_digest = re.compile(r"sha256:[0-9a-f]{64}")


class Mark(NamedTuple):
    """The digest and the size by which a file of a skill is recognised as unchanged."""

    digest: str
    size: int


class Skill(Struct, frozen=True):
    """A parsed entry of `skills/list`."""

    uri: str
    """Of its `SKILL.md`."""
    name: str
    description: str
    files: Mapping[str, Mark] | None
    """By URI; None where its content is dynamic."""

    @property
    def root(self) -> str:
        return root_of(self.uri)

    def has(self, uri: str) -> bool:
        """Return whether a URI lies in its folder."""
        return uri == self.root or uri.startswith(f"{self.root}/")


def mark_of(data: bytes) -> Mark:
    """Return the digest and the size of a file's bytes."""
    return Mark(f"sha256:{sha256(data).hexdigest()}", len(data))


def root_of(uri: str) -> str:
    """Return the URI of a skill's folder."""
    return uri.removesuffix(f"/{MAIN}")


# URIs


def expose(uri: str, prefix: str) -> str:
    """Return the URI by which clients call a URI of a server with this prefix."""
    scheme, _, rest = uri.partition("://")
    if not prefix:
        return uri
    return f"{_SCHEME}{prefix}/{rest}" if scheme == "skill" else f"{_SCHEME}{prefix}/{scheme}:/{rest}"


def restore(uri: str, prefix: str) -> str | None:
    """Return the server's own URI for one that clients use; None if it does not begin with this prefix."""
    head = f"{_SCHEME}{prefix}/"
    if not prefix or not uri.startswith(head):
        return None
    rest = uri[len(head) :]
    scheme, mark, path = rest.partition(":/")
    return f"{scheme}://{path}" if mark and "/" not in scheme else f"{_SCHEME}{rest}"


def first_part(uri: str) -> str:
    """Return the part of a server's own URI that clients could take for another server's prefix; "" without one."""
    return uri[len(_SCHEME) :].partition("/")[0] if uri.startswith(_SCHEME) else ""


def _is_plain(uri: str) -> bool:
    """Return whether a URI leads to one place: nothing in it goes up, and no part of it is empty."""
    parts = uri.partition("://")[2].split("/")
    return (
        len(uri) <= _MOST_URI
        and _uri.fullmatch(uri) is not None
        and "%2e" not in uri.lower()
        and not any(part in ("", ".", "..") for part in parts)
    )


# Entries


def read_skill(entry: Raw) -> Skill:
    """Read one entry of `skills/list`. Raises ValueError for one that the extension does not allow."""
    members = jsonrpc.plain_object(entry) or {}
    uri, about, resources = members.get("uri"), members.get("frontmatter"), members.get("resources")
    if not isinstance(uri, str) or not uri.endswith(f"/{MAIN}") or not _is_plain(uri):
        raise ValueError(f"expected the URI of a {MAIN}, found {str(uri)[:80]!r}")
    if not isinstance(about, dict):
        raise ValueError("it has no frontmatter")
    check_front_matter(about)
    if root_of(uri).rpartition("/")[2] != about["name"]:
        raise ValueError(f"its name {about['name']!r} is not that of its folder")
    skill = Skill(uri, about["name"], about["description"], None)
    if resources == _DYNAMIC:
        return skill
    if not isinstance(resources, list):
        raise ValueError("its resources are no list")
    return Skill(uri, skill.name, skill.description, _read_files(skill, resources))


def _read_files(skill: Skill, resources: list[Any]) -> dict[str, Mark]:
    files: dict[str, Mark] = {}
    for each in resources:
        file = each if isinstance(each, dict) else {}
        uri, digest, size = file.get("uri"), file.get("digest"), file.get("size")
        if not isinstance(uri, str) or not _is_plain(uri) or not uri.startswith(f"{skill.root}/") or uri in files:
            raise ValueError(f"its resource {str(uri)[:80]!r} is not one of its files, or stands there twice")
        if not isinstance(digest, str) or _digest.fullmatch(digest) is None or type(size) is not int or size < 0:
            raise ValueError(f"its resource {uri[:80]!r} lacks a sha256 digest or a size")
        files[uri] = Mark(digest, size)
    if skill.uri not in files:
        raise ValueError(f"its resources lack its {MAIN}")
    if len(files) > MOST_FILES or sum(mark.size for mark in files.values()) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_FILES} files or {MOST_BYTES} bytes")
    return files


def check_front_matter(about: Mapping[str, Any]) -> None:
    """Raise ValueError for front matter that the Agent Skills specification does not allow: hosts refuse a whole list
    because of one such skill."""
    name, description = about.get("name"), about.get("description")
    if not isinstance(name, str) or len(name) > 64 or _name.fullmatch(name) is None:
        raise ValueError(f"name: expected small letters, digits and hyphens, found {str(name)[:80]!r}")
    if not isinstance(description, str) or not description.strip() or len(description) > _MOST_DESCRIPTION:
        raise ValueError(f"description: expected a text of at most {_MOST_DESCRIPTION} characters")
    metadata, compatibility = about.get("metadata", {}), about.get("compatibility", "any")
    if not isinstance(metadata, dict) or not all(isinstance(each, str) for each in metadata.values()):
        raise ValueError("metadata: expected texts alone; write numbers in quotes")
    if not isinstance(compatibility, str) or not 0 < len(compatibility) <= _MOST_COMPATIBILITY:
        raise ValueError(f"compatibility: expected a text of at most {_MOST_COMPATIBILITY} characters")


def expose_entry(entry: Raw, prefix: str) -> Raw:
    """Return an entry with its URIs as clients call them."""
    if not prefix:
        return entry
    members: dict[str, Any] = jsonrpc.plain_object(entry) or {}
    members["uri"] = expose(members["uri"], prefix)
    if isinstance(members["resources"], list):
        members["resources"] = [{**each, "uri": expose(each["uri"], prefix)} for each in members["resources"]]
    return jsonrpc.raw(members)


def expose_uris(result: Raw, key: str, prefix: str) -> Raw:
    """Return a result whose members under `key` have their URIs as clients call them."""
    members: dict[str, Any] = jsonrpc.fields(result)
    if not prefix or key not in members:
        return result
    listed = jsonrpc.decode_value(members[key])
    if not isinstance(listed, list):
        return result
    members[key] = [
        {**each, "uri": expose(each["uri"], prefix)}
        if isinstance(each, dict) and isinstance(each.get("uri"), str) else each
        for each in listed
    ]  # fmt: skip
    return jsonrpc.raw(members)


def children(folder: str, files: Iterable[str]) -> list[dict[str, str]]:
    """Return the resources right in a folder, given the URIs of all files of its skill; [] if it is not one of
    theirs."""
    found: dict[str, dict[str, str]] = {}
    for uri in files:
        if not uri.startswith(f"{folder}/"):
            continue
        name, is_deeper, _ = uri[len(folder) + 1 :].partition("/")
        kind = _FOLDER_TYPE if is_deeper else type_of(name)
        found.setdefault(name, {"uri": f"{folder}/{name}", "name": name, "mimeType": kind})
    return list(found.values())


def type_of(name: str) -> str:
    """Return the MIME type of a file by its name."""
    if name.lower().endswith(".md"):
        return "text/markdown"
    import mimetypes  # no start waits for its tables

    return mimetypes.guess_type(name)[0] or "text/plain"
