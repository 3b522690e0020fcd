"""Replaces `${VAR}` in the config by its value, and collects the values that logs must not show.

It also says which variables of our environment a server gets: a short list, and those that its entry names in
`inherit`. Our environment holds every secret of the user (tokens, cloud keys), and a server is somebody else's program.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct

from foretool.server.config import jsonc
from foretool.server.config.codes import Code
from foretool.server.config.errors import Invalid, printable_line


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
    r"\$(?P<literal>\$)?\{(?:(?P<kind>input|keyring|command|config|workspaceFolder|relativeFileDirname|userConfig|user_config)"
    r"[:.](?P<asked>[^}]*)|(?P<slash>/)|(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?)\}"
)

WORKING_FOLDER = "workspaceFolder"
"""`${workspaceFolder}` is the folder in which the client started foretool, as in VS Code and Cursor."""

FOLDER_NAMES = frozenset({WORKING_FOLDER, "workspaceRoot", "workspaceFolderBasename", "cwd"})
"""Words of clients that stand for the folder that is open, or its name."""

# What only a running editor knows.
_OF_EDITOR = frozenset({
    "file", "fileBasename", "fileBasenameNoExtension", "fileDirname", "fileDirnameBasename", "fileExtname",
    "fileWorkspaceFolder", "lineNumber", "columnNumber", "relativeFile", "relativeFileDirname", "selectedText",
    "execPath", "defaultBuildTask", "extensionInstallFolder", "__dirname", "DXT_DIR",
})  # fmt: skip
_OF_CLIENTS = FOLDER_NAMES | _OF_EDITOR | {"userHome", "pathSeparator"}
"""Words that clients write as `${...}` and that are no variables of the environment."""

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
        if match["slash"]:
            return os.sep
        if match["kind"]:
            return self._asked(match)
        if name in _OF_CLIENTS and name not in self.environ:
            return self._of_client(name, match[0])
        return self._variable(name, default)

    def _variable(self, name: str, default: str | None) -> str:
        value = self.environ.get(name)
        if default is not None:
            value = value or default
        if value is None:
            problem = f"variable {name} is not set: write its value there, or set it where your client starts"
            raise Invalid(self.path, problem, code=Code.VARIABLE_MISSING)
        if name not in _NO_SECRET:
            self.secrets.append((value, name))
        return value

    def _asked(self, match: re.Match[str]) -> str:
        """Return what a client would have asked its user for, if a variable of that name is set."""
        kind, written = match["kind"], printable_line(match[0])
        if kind == WORKING_FOLDER:
            problem = f"{written} means one of several folders of VS Code; write ${{{WORKING_FOLDER}}} or a full path"
            raise Invalid(self.path, problem, code=Code.CLIENT_VARIABLE)
        if kind == "keyring":
            return self._in_keyring(match["asked"])
        if kind != "input":
            problem = f"{written} is known only inside the client that it was written for; write its value"
            raise Invalid(self.path, problem, code=Code.CLIENT_VARIABLE)
        name = input_variable(match["asked"])
        if name in self.environ:
            return self._variable(name, None)
        problem = f"{written} asks the user in VS Code, which foretool cannot; set {name} where your client starts"
        raise Invalid(self.path, problem, code=Code.CLIENT_VARIABLE)

    def _in_keyring(self, name: str) -> str:
        from foretool.server.config import keyrings  # only a config that names it needs it

        try:
            value = keyrings.read_value(name, self.environ)
        except keyrings.KeyringError as error:
            problem = f"{printable_line(name)} cannot be read from the keyring: {error}; or write ${{VAR}} in its place"
            raise Invalid(self.path, problem, code=Code.KEYRING) from None
        self.secrets.append((value, name))
        return value

    def _of_client(self, name: str, written: str) -> str:
        """Return the value of a word that clients know. Raises `Invalid` for those that only an editor can tell."""
        if name == "userHome":
            return home_folder(self.environ)
        if name == "pathSeparator":
            return os.sep
        if name in _OF_EDITOR:
            problem = f"{written} is known only inside an editor; write its value, or ${{{WORKING_FOLDER}}}"
            raise Invalid(self.path, problem, code=Code.CLIENT_VARIABLE)
        folder = self._working_folder(written)
        return os.path.basename(folder) if name == "workspaceFolderBasename" else folder  # noqa: PTH119 -- quicker

    def _working_folder(self, written: str) -> str:
        """Return the folder that the client has open. Clients without one start foretool in the home folder or above:
        a server that may use the open folder must not get all files of the user there. Raises `Invalid`."""
        try:
            folder = os.getcwd()  # noqa: PTH109 -- Path.cwd() says the same
        except OSError:
            raise Invalid(self.path, "the folder that foretool was started in is gone; write a full path") from None
        home = os.path.realpath(home_folder(self.environ))
        if os.path.commonpath((folder, home)) == folder:
            problem = (
                f"{written} is the folder that a client has open; foretool was started in {printable_line(folder)},"
                " which holds all your files, so the server does not run: open a folder in the client, or write a full"
                " path"
            )
            raise Invalid(self.path, problem, code=Code.FOLDER_OF_CLIENT)
        return folder


def input_variable(asked: str) -> str:
    """Return the name of the variable that stands in for `${input:asked}`: `github-token` becomes `GITHUB_TOKEN`."""
    return re.sub(r"\W+", "_", asked).strip("_").upper() or "INPUT"


def home_folder(environ: Mapping[str, str]) -> str:
    """Return the user's home folder as a full path."""
    named = environ.get("HOME", "")
    if named.startswith("/"):
        return named
    import pwd  # only an environment without HOME needs it

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"


def variable_names(text: str, *, required: bool = False) -> frozenset[str]:
    """Return the names of the variables that a text reads; with `required`, those without a default."""
    found = (match for match in VARIABLE.finditer(text) if not match["literal"])
    names = ((match["name"], match["default"]) for match in found if match["name"])
    return frozenset(
        name for name, default in names if name not in _OF_CLIENTS and not (required and default is not None)
    )


def client_names_in(text: str) -> frozenset[str]:
    """Return the names that only clients know, such as `workspaceFolder`, as far as a text reads them."""
    found = (match for match in VARIABLE.finditer(text) if not match["literal"])
    return frozenset(match["name"] for match in found if match["name"] in _OF_CLIENTS)


def secrets_in_url(url: str) -> Iterator[tuple[str, str]]:
    """Yield the password and the query values of an address."""
    if user := re.match(r"\w+://[^/?#@]*:([^/?#]*)@", url):
        yield user[1], "url"
    yield from ((match[1], "url") for match in re.finditer(r"[?&][^=?&#]*=([^&#]+)", url))


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


BASIC_NAMES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""What every server gets, as the MCP SDKs give it."""
_OWN_SECRETS = ("token", "tokens", "encoder_key", "storage", "seal_keys", "access", "enrich", "judge")
"""Settings whose variables hold credentials for foretool itself."""


def own_variables(settings: Any) -> frozenset[str]:
    """Return the names of the variables that hold our own credentials. `settings`: the `foretool` block as written."""
    block = settings if isinstance(settings, dict) else {}
    return variable_names(msgspec.json.encode([block.get(key) for key in _OWN_SECRETS]).decode())


def is_pattern(name: str) -> bool:
    """Return whether a text is a shell pattern and not a name."""
    return any(sign in name for sign in "*?[")


def inherited_variables(environ: Mapping[str, str], inherit: Iterable[str], withheld: Iterable[str]) -> dict[str, str]:
    """Return the variables that these names and patterns mean. A name that is not set is no error.

    Patterns never mean our own variables: `FORETOOL_...`, and those in `withheld`.
    """
    kept_back = frozenset(withheld)
    found: dict[str, str] = {}
    for wanted in inherit:
        if not is_pattern(wanted):
            names = [wanted] if wanted in environ else []
        else:
            names = [name for name in environ if fnmatchcase(name, wanted) and not _is_own(name, kept_back)]
        # Functions that bash exports are code, which a shell of the server would run.
        found.update((name, environ[name]) for name in names if not environ[name].startswith("()"))
    return found


def server_environment(
    environ: Mapping[str, str], inherit: Iterable[str], withheld: Iterable[str], env: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole environment of a server: the basic names, what it inherits, and its own `env`."""
    found = inherited_variables(environ, (*BASIC_NAMES, *inherit), withheld)
    if "PATH" in found:
        found["PATH"] = safe_path(found["PATH"])
    return {**found, **env}


def safe_path(path: str) -> str:
    """Return a PATH without relative folders: they would be folders of a repository that foretool runs in."""
    return os.pathsep.join(folder for folder in path.split(os.pathsep) if folder.startswith("/")) or os.defpath


def wrong_name(wanted: str) -> str:
    """Say why an entry of `inherit` can be neither a name nor a pattern, or ""."""
    if not wanted or re.search(r"[=$\0\s]", wanted):
        return 'expected the name of a variable, or a pattern like "AWS_*"; a value belongs into "env"'
    return ""


def _is_own(name: str, withheld: frozenset[str]) -> bool:
    return name.startswith("FORETOOL_") or name in withheld
