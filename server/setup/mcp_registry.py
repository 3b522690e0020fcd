"""The MCP Registry: asks it for servers, and turns what it says of one into an entry of our config.

Everything it answers was written by strangers. So one host is asked and no redirect is followed, an answer has a
largest size, only a package of a known kind is run, by a program of our choice, with arguments that cannot make that
program run something else, and no `${VAR}` of an answer is expanded.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from foretool.server.config.errors import Refusal
from foretool.server.config.variables import VARIABLE
from foretool.server.setup.pasted import NewServer, checked, slug
from foretool.server.system.http_clients import UnusableProxy, make_client
from foretool.server.system.logs import printable

_ADDRESS: Final = "https://registry.modelcontextprotocol.io"
_VARIABLE_NAME: Final = "FORETOOL_REGISTRY"
"""Names another registry: the variable of the environment."""
LARGEST: Final = 4 * 1024 * 1024
_TIMEOUT_S: Final = 15.0
SHOWN: Final = 20
"""How many servers a search lists."""
NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9.-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*")
"""A name in the registry: a domain in reverse, and a name below it."""

Kind = Literal["npm", "pypi", "oci", "remote"]
_PROGRAMS: Final[dict[Kind, str]] = {"npm": "npx", "pypi": "uvx", "oci": "docker"}
_HOMES: Final = {
    "npm": ("https://registry.npmjs.org",), "pypi": ("https://pypi.org", "https://pypi.org/simple"),
    "oci": ("https://docker.io", "https://ghcr.io", "https://quay.io", "https://mcr.microsoft.com"),
}  # fmt: skip
"""Where packages of a kind come from without further settings; an entry that names another place is refused."""
_IDENTIFIERS: Final = {
    "npm": r"(?:@[a-zA-Z0-9][\w.-]*/)?[a-zA-Z0-9][\w.-]*",
    "pypi": r"[a-zA-Z0-9](?:[\w.-]*[a-zA-Z0-9])?",
    "oci": r"[a-z0-9][a-z0-9.-]*(?::\d+)?(?:/[a-z0-9][a-z0-9._-]*)*(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
}
_VERSION: Final = r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,99}"
_HARMLESS: Final[dict[str, frozenset[str]]] = {
    "npx": frozenset({"-y", "--yes", "-q", "--quiet"}),
    "uvx": frozenset({"-q", "--quiet"}),
    "docker": frozenset({"-i", "--interactive", "--rm", "--init"}),
}
"""Arguments for the program that runs a package, which an entry may ask for. Others could run something else, or open
the machine to it."""
_STEERING: Final = re.compile(
    r"(?i)PATH|HOME|SHELL|IFS|ENV|BASH_ENV|PERL5.*|RUBY.*|LD_.*|DYLD_.*|NODE_(?!ENV$).*|NPM_.*|PYTHON(?!UNBUFFERED$|IOENCODING$|UTF8$).*"
    r"|UV_.*|PIP_.*|DOCKER_.*|GIT_.*|SSL_.*|.*_PROXY|.*CA_BUNDLE|FORETOOL_.*"
)
"""Variables that decide what a program loads, or where it connects to."""


class RegistryError(Refusal):
    """The registry cannot be used, or what it says must not be run."""


class RequiredValue(Struct, frozen=True):
    """A value that the user has to give: a variable, a header, a part of an address, an argument."""

    name: str
    """The variable of the environment that is read if the user gives no value."""
    about: str
    is_secret: bool
    choices: tuple[str, ...]


class Offer(Struct, frozen=True):
    """One way to reach a server of the registry."""

    kind: Kind
    what: str
    """The package with its version, or the address."""
    entry: dict[str, Any]
    """As our `mcpServers` writes it; a value that the user gives stands as `${NAME}`."""
    needs: tuple[RequiredValue, ...]

    @property
    def program(self) -> str:
        """The program that has to be installed, "" for an address."""
        return _PROGRAMS.get(self.kind, "")


class RegistryListing(Struct, frozen=True):
    """What the registry says of one server."""

    name: str
    description: str
    version: str
    source: str
    """Where its source is, or ""."""
    status: str
    """`active`, `deprecated` or `deleted`."""
    offers: tuple[Offer, ...]
    refused: tuple[str, ...]
    """Why other ways to reach it are not offered, one line each."""


Fetch = Callable[[str], bytes]
"""Gets the body of an address. Raises `RegistryError`."""


def address_of(given: str, environ: Mapping[str, str]) -> str:
    """Return the address of the registry. Raises `RegistryError` for one without TLS."""
    found = (given or environ.get(_VARIABLE_NAME) or _ADDRESS).rstrip("/")
    parts = urlsplit(found)
    is_loopback = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not parts.hostname or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback)):
        raise RegistryError(f"the registry {printable(found)[:80]!r} has to begin with https://")
    return found


def find_listings(base: str, words: str, fetch: Fetch) -> list[RegistryListing]:
    """Return the servers whose names contain the words, in their newest versions. Raises `RegistryError`."""
    url = f"{base}/v0.1/servers?search={quote(words, safe='')}&version=latest&limit=100"
    try:
        data = msgspec.json.decode(fetch(url))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RegistryError(f"{base} answered with something that is not JSON; is it an MCP registry?") from None
    items = data.get("servers") if isinstance(data, Mapping) else None
    if not isinstance(items, list):
        raise RegistryError(f"{base} answered without a list of servers; is it an MCP registry?")
    found: dict[str, RegistryListing] = {}
    for item in items:
        listing = _listing(item)
        # A registry that ignores version=latest answers with every version, the newest marked or last.
        if listing is not None and (listing.name not in found or _is_latest(item)):
            found[listing.name] = listing
    return [each for each in found.values() if each.status != "deleted"]


def find_listing(base: str, name: str, fetch: Fetch) -> RegistryListing:
    """Return the server of exactly this name. Raises `RegistryError`, which names near ones."""
    found = find_listings(base, name, fetch)
    for listing in found:
        if listing.name == name:
            return listing
    near = ", ".join(each.name for each in found[:3])
    meant = f"; it has: {near}" if near else f"; to look for one: foretool add --search {name.partition('/')[2]}"
    raise RegistryError(f"{urlsplit(base).hostname} has no server {printable(name)!r}{meant}")


def fetch_url(url: str) -> bytes:
    """Get an address over HTTP: no redirects, at most `LARGEST` bytes, within `_TIMEOUT_S`. Raises `RegistryError`."""
    import time

    import httpx2  # takes 100 ms to import, and only this command needs it

    host = urlsplit(url).hostname
    body, end = bytearray(), time.monotonic() + _TIMEOUT_S
    headers = {"accept": "application/json"}
    try:
        with (
            make_client(httpx2.Client, url, follow_redirects=False, timeout=_TIMEOUT_S) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            if answer.is_redirect:
                other = printable(urlsplit(answer.headers.get("location", "")).hostname or "another address")[:80]
                raise RegistryError(f"{host} sends us on to {other}, which is not followed; name it with --registry")
            if answer.status_code != 200:
                raise RegistryError(
                    f"{host} answered with HTTP {answer.status_code}; try again later, or name another with --registry"
                )
            for piece in answer.iter_bytes():
                body += piece
                if len(body) > LARGEST:
                    raise RegistryError(f"{host} answered with more than {LARGEST >> 20} MiB; name more of the server")
                if time.monotonic() > end:
                    raise RegistryError(f"{host} did not finish its answer within {_TIMEOUT_S:g} s; try again later")
    except UnusableProxy as error:
        raise RegistryError(f"{host} cannot be reached: {error}") from None
    except httpx2.HTTPError as error:
        raise RegistryError(
            f"{host} cannot be reached ({type(error).__name__}); check the network, or --registry"
        ) from None
    return bytes(body)


def choose_launch(listing: RegistryListing, wanted: str = "") -> Offer:
    """Return the way to reach a server whose program is installed. `wanted`: its kind. Raises `RegistryError`."""
    offers = [each for each in listing.offers if wanted in ("", each.kind)]
    if not offers:
        why = "; ".join(listing.refused) or "it names no package and no address"
        has = f"; it offers: {', '.join(each.kind for each in listing.offers)}" if listing.offers else ""
        raise RegistryError(f"{listing.name} offers nothing that can be added{has}: {why}")
    usable = (each for each in offers if not each.program or shutil.which(each.program))
    return next(usable, offers[0])


def server_of(listing: RegistryListing, offer: Offer, name: str, given: Mapping[str, str]) -> NewServer:
    """Return the server to add. `given`: what the user gave, by the names of needs; the rest stays `${NAME}`. Raises
    `PasteError`."""

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return VARIABLE.sub(
                lambda found: given.get(found["name"] or "", found[0]) if not found["literal"] else found[0], value
            )
        if isinstance(value, list):
            return [fill(each) for each in value]
        return {key: fill(each) for key, each in value.items()} if isinstance(value, dict) else value

    return checked(NewServer(name or slug(listing.name.partition("/")[2]), fill(offer.entry)))


def _is_latest(item: Any) -> bool:
    meta = item.get("_meta")
    official = meta.get("io.modelcontextprotocol.registry/official") if isinstance(meta, Mapping) else None
    return isinstance(official, Mapping) and official.get("isLatest") is True


def _listing(item: Any) -> RegistryListing | None:
    """Read one item of an answer; None for what is no server."""
    server = item.get("server") if isinstance(item, Mapping) else None
    if not isinstance(server, Mapping) or not NAME.fullmatch(_text(server, "name")):
        return None
    meta = item.get("_meta")
    official = meta.get("io.modelcontextprotocol.registry/official") if isinstance(meta, Mapping) else None
    status = _text(official, "status") or _text(server, "status") or "active"
    offers: list[Offer] = []
    refused: list[str] = []
    for read, items in ((_package, server.get("packages")), (_remote, server.get("remotes"))):
        for each in items if isinstance(items, list) else ():
            try:
                if isinstance(each, Mapping):
                    offers.append(read(each))
            except RegistryError as error:
                refused.append(str(error))
    source = _text(server.get("repository"), "url") or _text(server, "websiteUrl")
    return RegistryListing(
        _text(server, "name"), _text(server, "description")[:300], _text(server, "version")[:100], source[:200],
        status, tuple(offers), tuple(refused),
    )  # fmt: skip


def _package(package: Mapping[str, Any]) -> Offer:
    """Turn a package into a command. Raises `RegistryError` for what must not be run."""
    kind, identifier = _text(package, "registryType"), _text(package, "identifier")
    version, home = _text(package, "version"), _text(package, "registryBaseUrl").rstrip("/")
    if kind not in _PROGRAMS:
        raise RegistryError(f"a package of the kind {printable(kind)[:20]!r} cannot be run by foretool")
    if home and home not in _HOMES[kind]:
        raise RegistryError(f"its {kind} package comes from {printable(home)[:60]!r}, not from {_HOMES[kind][0]}")
    if not re.fullmatch(_IDENTIFIERS[kind], identifier):
        raise RegistryError(f"{printable(identifier)[:60]!r} is not the name of a package of the kind {kind}")
    if version and not re.fullmatch(_VERSION, version):
        raise RegistryError(f"{printable(version)[:40]!r} is not a version")
    transport = package.get("transport")
    if (_text(transport, "type") or "stdio") != "stdio":
        raise RegistryError(f"its {kind} package has to be started by hand, and is then reached over HTTP")
    values = _Values()
    program = _PROGRAMS[kind]
    before = values.arguments(package.get("runtimeArguments"), _HARMLESS[program], program)
    env = values.env(package.get("environmentVariables"))
    args = values.arguments(package.get("packageArguments"))
    named = f"{identifier}@{version}" if version and kind != "oci" else identifier
    if kind == "npm":
        words = ["-y", *(each for each in before if each not in ("-y", "--yes")), named, *args]
    elif kind == "pypi":
        words = [*before, named, *args]
    else:
        has_tag = "@" in identifier or ":" in identifier.rpartition("/")[2]
        named = identifier if has_tag or not version else f"{identifier}:{version}"
        passed = [word for name in env for word in ("-e", name)]
        always = [each for each in before if each not in ("-i", "--interactive", "--rm")]
        words = ["run", "-i", "--rm", *always, *passed, named, *args]
    entry: dict[str, Any] = {"command": program, "args": words}
    if env:
        entry["env"] = env
    return Offer(kind, f"{kind} package {named}", entry, tuple(values.needs.values()))


def _remote(remote: Mapping[str, Any]) -> Offer:
    """Turn an address into an entry. Raises `RegistryError` for one that others could read on the way."""
    kind, values = _text(remote, "type"), _Values()
    if kind not in ("streamable-http", "http", "sse"):
        raise RegistryError(f"it is reached over {printable(kind)[:20]!r}, which foretool does not speak")
    written = _text(remote, "url")
    if not re.match(r"https://[A-Za-z0-9.{}_-]+(?::\d+)?(?:[/?]|\Z)", written) or not written.isprintable():
        raise RegistryError(f"its address {printable(written)[:60]!r} does not begin with https:// and a host")
    url = values.text({**remote, "value": written})
    entry: dict[str, Any] = {"url": url}
    if kind == "sse":
        entry["type"] = "sse"
    headers = {}
    for each in _items(remote.get("headers")):
        name = _text(each, "name")
        if not re.fullmatch(r"[A-Za-z0-9-]{1,80}", name):
            raise RegistryError(f"{printable(name)[:40]!r} is not the name of a header")
        if (value := values.value(each, name, is_needed=each.get("isRequired") is True)) is not None:
            headers[name] = value
    if headers:
        entry["headers"] = headers
    return Offer("remote", written, entry, tuple(values.needs.values()))


class _Values:
    """Reads the values of one entry, and collects what the user has to give."""

    def __init__(self) -> None:
        self.needs: dict[str, RequiredValue] = {}

    def env(self, items: object) -> dict[str, str]:
        found = {}
        for each in _items(items):
            name = _text(each, "name")
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", name):
                raise RegistryError(f"{printable(name)[:40]!r} is not the name of a variable")
            value = self.value(each, name, is_needed=each.get("isRequired") is True)
            if value is None:
                continue
            if _STEERING.fullmatch(name):
                raise RegistryError(
                    f"it sets {name}, which decides what programs load or reach; add it by hand if you trust it"
                )
            found[name] = value
        return found

    def arguments(self, items: object, allowed: frozenset[str] | None = None, program: str = "") -> list[str]:
        """Return arguments. `allowed`: those that may go to the program that runs the package; None for the package's
        own."""
        found: list[str] = []
        for each in _items(items):
            name = _text(each, "name")
            if allowed is not None:
                word = name or _text(each, "value")
                if word not in allowed or (name and _text(each, "value")):
                    raise RegistryError(
                        f"it wants to give {program} the argument {printable(word)[:40]!r};"
                        " add it by hand if you trust it"
                    )
                found.append(word)
                continue
            if name and not re.fullmatch(r"-{0,2}[A-Za-z0-9][\w.:-]{0,99}", name):
                raise RegistryError(f"{printable(name)[:40]!r} is not the name of an argument")
            hint = _text(each, "valueHint") or name.lstrip("-") or "ARGUMENT"
            has_value = not name or any(
                key in each for key in ("value", "default", "valueHint", "variables", "isSecret")
            )
            is_needed = each.get("isRequired") is True
            if name and not has_value:
                found += [name] if is_needed else []
                continue
            value = self.value(each, hint, is_needed=is_needed)
            if value is not None:
                found += [name, value] if name else [value]
        return found

    def value(self, item: Mapping[str, Any], name: str, *, is_needed: bool) -> str | None:
        """Return the value of a variable, a header or an argument; None if nobody needs it."""
        if _text(item, "value"):
            return self.text(item)
        default = _text(item, "default")
        if default and item.get("isSecret") is not True:
            return _literal(default)
        return self._need(name, item) if is_needed else None

    def text(self, item: Mapping[str, Any]) -> str:
        """Return a fixed text, in which `{variable}` stands for what the user gives."""
        variables = item.get("variables")
        known = variables if isinstance(variables, Mapping) else {}
        written, fixed = "", ""
        for part in re.split(r"(\{[A-Za-z_][\w-]{0,99}\})", _text(item, "value")):
            about = known.get(part[1:-1])
            if part[:1] != "{" or not isinstance(about, Mapping):
                fixed += part
            elif default := _text(about, "value") or ("" if about.get("isSecret") is True else _text(about, "default")):
                fixed += default
            else:
                # "$" before a variable of ours would make text of it.
                written += _literal(fixed.removesuffix("$")) + self._need(part[1:-1], about)
                fixed = ""
        # Only whole pieces are escaped: "$" and "{HOME}" side by side would become a variable.
        return written + _literal(fixed)

    def _need(self, name: str, item: Mapping[str, Any]) -> str:
        variable = re.sub(r"\W+", "_", name).strip("_").upper() or "VALUE"
        if variable[0].isdigit():
            variable = f"_{variable}"
        choices = item.get("choices")
        self.needs[variable] = RequiredValue(
            variable, printable(_text(item, "description"))[:200], item.get("isSecret") is True,
            tuple(printable(str(each))[:40] for each in choices[:20]) if isinstance(choices, list) else (),
        )  # fmt: skip
        return f"${{{variable}}}"


def _literal(text: str) -> str:
    """Return a text of a stranger so that our config takes it as it stands: no variable of the user is put in."""
    if not text.isprintable():
        raise RegistryError("it holds an invisible character or a line break")
    return text.replace("${", "$${")


def _items(value: object) -> Iterator[Mapping[str, Any]]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping):
            yield each


def _text(data: object, key: str) -> str:
    found = data.get(key) if isinstance(data, Mapping) else None
    return found if isinstance(found, str) else ""
