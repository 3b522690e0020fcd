"""Replaces `${VAR}` in the config by its value, and collects the values that logs must not show."""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from foretool.server.config import jsonc
from foretool.server.config.errors import Invalid, one_line


class Secrets(Struct, frozen=True):
    """Values that logs must not show, each with the name of its variable or header."""

    values: tuple[tuple[str, str], ...] = ()  # (value, name), longest value first

    def redact(self, text: str) -> str:
        """Return `text` with every secret replaced by its name in brackets."""
        for value, name in self.values:
            if value in text:
                text = text.replace(value, f"[{name}]")
        return text

    def hide_credentials(self, data: bytes) -> bytes:
        """Return `data` with every value replaced whose name says that it is a credential.

        For texts that a model reads: there `Europe/Berlin`, the value of a variable TZ, has to stay.
        """
        for value, name in self.values:
            if (found := value.encode(errors="replace")) in data and len(value) >= 8 and CREDENTIAL.search(name):
                data = data.replace(found, f"[{name}]".encode())
        return data

    def __repr__(self) -> str:
        return f"Secrets({len(self.values)} values)"


VARIABLE = re.compile(
    r"\$(?P<literal>\$)?\{(?:input:[^}]*|(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?)\}"
)

WORKING_FOLDER = "workspaceFolder"
"""`${workspaceFolder}` is the folder in which the client started foretool, as in VS Code and Cursor."""

# These variables hold places, not credentials; without their values logs would be unreadable.
_NO_SECRET = frozenset({"HOME", "HOSTNAME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "TMPDIR", "USER"})


class Expansion(Struct):
    """Expands `${VAR}`, `${VAR:-default}` and `${env:VAR}` at one place of the file; `$${VAR}` becomes `${VAR}`.

    As in a shell, the default also stands in for an empty variable.
    """

    environ: Mapping[str, str]
    path: jsonc.Path
    secrets: list[tuple[str, str]] = []
    """(value, name) of what was expanded so far, in one list for all places of a server."""

    def at(self, *keys: str | int) -> "Expansion":
        """Return the expansion for a place further down, which collects secrets in the same list."""
        return Expansion(self.environ, (*self.path, *keys), self.secrets)

    def text(self, written: str) -> str:
        return VARIABLE.sub(self._value, written) if "${" in written else written

    def secret(self, written: str, name: str) -> str:
        """Expand a value that is secret: the whole of it, and each of its lines (of a header, each of its words)."""
        value = self.text(written)
        parts = value.split() if self.path[-2] == "headers" else value.splitlines()
        self.secrets += ((part, name) for part in (value, *parts))
        return value

    def _value(self, match: re.Match[str]) -> str:
        name, default = match["name"], match["default"]
        if match["literal"]:
            return match[0][1:]
        if name == WORKING_FOLDER and name not in self.environ:
            return self._working_folder()
        if name is None:
            asks = f"{one_line(match[0])} asks the user in VS Code"
            raise Invalid(self.path, f"{asks}; export a variable and write ${{NAME}}")
        value = self.environ.get(name)
        if default is not None:
            value = value or default
        if value is None:
            raise Invalid(self.path, f"variable {name} is not set; export it or write ${{{name}:-default}}")
        if name not in _NO_SECRET:
            self.secrets.append((value, name))
        return value

    def _working_folder(self) -> str:
        try:
            return os.getcwd()  # noqa: PTH109 -- Path.cwd() says the same
        except OSError:
            raise Invalid(self.path, "the folder that foretool was started in is gone; write a full path") from None


def names_in(text: str) -> frozenset[str]:
    """Return the names of the variables that a text reads."""
    return frozenset(match["name"] for match in VARIABLE.finditer(text) if match["name"] and not match["literal"])


def secrets_in_url(url: str) -> Iterator[tuple[str, str]]:
    """Yield the password and the query values of an address."""
    if user := re.match(r"\w+://[^/?#@]*:([^/?#]*)@", url):
        yield user[1], "url"
    yield from ((match[1], "url") for match in re.finditer(r"[?&][^=&#]*=([^&#]+)", url))


def collect(pairs: Iterable[tuple[str, str]]) -> Secrets:
    """Build `Secrets` from (value, name) pairs, also as JSON and URLs write them; no value under 6 characters."""
    # Shorter values occur everywhere ("true", "8080"); replacing them would hide more than it protects.
    named = {form: name for value, name in pairs if len(value) >= 6 for form in _written_forms(value)}
    return Secrets(tuple(sorted(named.items(), key=lambda pair: (-len(pair[0]), pair))))


def _written_forms(value: str) -> Iterator[str]:
    yield value
    if value.isalnum() and value.isascii():
        return
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    escaped = value.encode(errors="replace")
    yield "".join(chr(byte) if chr(byte) in _PLAIN_IN_URL else f"%{byte:02X}" for byte in escaped)


_PLAIN_IN_URL = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
CREDENTIAL = re.compile(r"(?i)token|key|secret|pass|pwd|credential|auth|cookie|session|_pat\b|dsn")
"""Names of variables and headers whose values are credentials; other values of the config are often plain words."""


def expand_tilde(path: str, home: str) -> str:
    """Replace a leading `~` by the home folder."""
    return home + path[1:] if path == "~" or path.startswith("~/") else path
