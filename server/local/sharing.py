"""Whether a window may join a running proxy: whether its own proxy would start the same servers in the same way.

Servers get variables of the proxy's environment, and the config reads some. So the environments of window and proxy
must agree in all of these, else a window could use the credentials of another one, or get other servers than it asked
for.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from foretool._version import __version__
from foretool.server.config.loader import LiveConfig
from foretool.server.config.variables import FOLDER_NAMES, WORKING_FOLDER, is_pattern, safe_path
from foretool.server.local.frames import digest_variable, installation

_ALWAYS: Final = frozenset({
    "HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "FORETOOL_STORAGE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
    "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR",
})  # fmt: skip
"""Variables that decide where we keep things and how servers over HTTP are reached."""
_NEVER: Final = frozenset({
    "PATH", "LOGNAME", "SHELL", "TERM", "USER", "_", "OLDPWD", "PWD", "SHLVL", "WINDOWID", "TERM_SESSION_ID",
    "FORETOOL_SOCKETS", "FORETOOL_TRACEBACK", WORKING_FOLDER,
})  # fmt: skip
"""Variables that differ from window to window and change no server: the user is the same, and PATH and the working
folder are compared by what they mean."""
_FOLDER_NAMES: Final = FOLDER_NAMES | {"PWD"}
_ENV: Final = b"#!/usr/bin/env "
"""How a script begins whose interpreter is found on PATH."""


class Sharing:
    """Decides whether a window may join this proxy. `folder`: where the proxy works. `bound`: returns the servers that
    work in folders which their clients name."""

    def __init__(
        self, config: LiveConfig, folder: str, bound: Callable[[], list[str]], environ: Mapping[str, str] = os.environ
    ) -> None:
        self._config = config
        self._folder = folder
        self._bound = bound
        self._environ = dict(environ)

    def refuse(self, hello: dict[str, Any]) -> str:
        """Say why a window with this greeting cannot join, without any value; "" if it can."""
        if not self._config.settings.share:
            return "share is false in the config"
        if hello.get("version") != __version__ or hello.get("installation") != installation():
            return f"this proxy is foretool {__version__} of another installation"
        if hello.get("folder") != self._folder and (reason := self._why_bound()):
            return reason
        return self._other_variable(hello) or self._other_program(str(hello.get("path", "")))

    def _why_bound(self) -> str:
        if (self._config.now.names | self._inherited()) & _FOLDER_NAMES:
            return f"its config uses the working folder, which is {self._folder}"
        if bound := self._bound():
            return f"server {bound[0]} works in the folders that its client names, and that is in {self._folder}"
        return ""

    def _other_variable(self, hello: dict[str, Any]) -> str:
        theirs = hello.get("environment")
        try:
            salt = bytes.fromhex(str(hello.get("salt")))
        except ValueError:
            salt = b""
        if not isinstance(theirs, dict) or not salt or len(salt) > 64:
            return "the greeting does not say what the environment is"
        inherited = self._inherited()
        patterns = set(filter(is_pattern, inherited))
        named = (self._config.now.names | (inherited - patterns) | _ALWAYS) - _NEVER
        matching = {
            name
            for name in {*self._environ, *theirs} - _NEVER
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        }
        for name in sorted(named | matching):
            own = self._environ.get(name)
            if (None if own is None else digest_variable(own, salt)) != theirs.get(name):
                return f"the variable {name} has another value there"
        return ""

    def _inherited(self) -> set[str]:
        """Return the names and patterns of variables that servers inherit."""
        return {name for server in self._config.now.servers.values() for name in server.inherit}

    def _other_program(self, path: str) -> str:
        """Name a program that this PATH leads to another file for; "" if there is none."""
        own = self._environ.get("PATH", "")
        if path == own:
            return ""
        commands = {server.command for server in self._config.now.servers.values() if server.type == "stdio"}
        for command in sorted(commands):
            ours, other = _find(command, own), _find(command, path)
            if ours != other:
                return f"{command} is another program on PATH there"
            interpreter = _interpreter(ours)
            if interpreter and _find(interpreter, own) != _find(interpreter, path):
                return f"{interpreter}, which runs {command}, is another program on PATH there"
        return ""


def _find(command: str, path: str) -> str:
    """Return the file that a command means, "" if there is none."""
    return os.path.realpath(found) if (found := shutil.which(command, path=safe_path(path))) else ""


def _interpreter(program: str) -> str:
    """Return the interpreter of a script that is found on PATH, "" if there is none."""
    try:
        with Path(program).open("rb") as file:
            first = file.read(200).partition(b"\n")[0]
    except OSError:
        return ""
    words = first.removeprefix(_ENV).split() if first.startswith(_ENV) else []
    return next((word.decode(errors="replace") for word in words if not word.startswith(b"-")), "")
