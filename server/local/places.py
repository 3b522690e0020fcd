"""Where the sockets of running proxies are, and which of them serves a config.

All of one user's sockets are in one folder that nobody else can enter. Every proxy has a socket of its own; its name
tells what it serves, so that a caller finds the right one without asking each. The folder depends on the home folder
alone: clients start servers with a small environment, often without `XDG_RUNTIME_DIR` and `XDG_STATE_HOME`, and a
terminal or a hook has both.

A prompt hook imports this file, so it imports nothing that takes time.
"""

from __future__ import annotations

import os
import zlib
from collections import namedtuple

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes more memory than all of a window's relay
    from collections.abc import Iterable, Mapping
    from typing import Final

FORM: Final = 1
"""The version of what is said on a socket (`frames`). A change that an older side would misread counts it up."""
_FOLDER_VARIABLE: Final = "FORETOOL_SOCKETS"
"""Names another folder, as a full path, or `off` for no sockets."""
_SUFFIX: Final = ".sock"
ANSWER_SUFFIX: Final = ".answer"
_ANY: Final = "any"
"""Stands for the profile of a proxy that serves every profile."""
MOST_NAMES: Final = 1000
"""Names in the folder that are looked at."""


class ProxyIdentity(namedtuple("Identity", ("config", "profile", "folder", "is_project"), defaults=(False,))):
    """What a proxy serves, or what a caller wants served.

    `config`: full path of the config file, without links. `profile`: the name of a profile, "" for the general
    settings; None for every profile (a proxy over HTTP), or for any of them (a question to all proxies). `folder`: full
    path of the working folder. `is_project`: the config is the `mcp.json` of that folder, which the user's own file
    lets in (`project_config`).
    """

    __slots__ = ()

    @classmethod
    def own(cls, config: str | os.PathLike[str], profile: str | None, *, is_project: bool) -> ProxyIdentity:
        """Return what this process serves."""
        try:
            folder = os.path.realpath(os.getcwd())  # noqa: PTH109 -- quicker to import
        except OSError:  # the folder is gone
            folder = ""
        return cls(os.path.realpath(config), profile, folder, is_project)


def find_folder(environ: Mapping[str, str]) -> str | None:
    """Return the folder of the sockets as a full path, whether or not it exists; None if there are to be none."""
    named = environ.get(_FOLDER_VARIABLE, "")
    if named == "off":
        return None
    if os.path.isabs(named):  # noqa: PTH117 -- quicker to import
        return named
    home = environ.get("HOME", "")
    if not os.path.isabs(home):  # noqa: PTH117 -- quicker to import
        return None
    return os.path.join(home, ".local", "state", "foretool", "run")  # noqa: PTH118 -- quicker to import


def project_file(folder: str) -> str:
    """Return the config file that a folder would have (`project_config`)."""
    return os.path.realpath(os.path.join(folder, "mcp.json"))  # noqa: PTH118 -- quicker to import


def serves(own: ProxyIdentity, config: str, profile: str | None, folder: str) -> str:
    """Say why a proxy does not serve a caller that wants this; "" if it does. `profile`: None for any."""
    if own.config != (project_file(folder) if own.is_project else config):
        return f"this proxy serves the config {own.config}"
    if own.profile is not None and profile is not None and own.profile != profile:
        return f"this proxy serves the profile {own.profile!r}"
    return ""


def name_socket(identity: ProxyIdentity, random: str) -> str:
    """Return the name of a proxy's socket. `random` tells apart proxies that serve the same."""
    profile = _ANY if identity.profile is None else _digest(identity.profile)
    return f"{_machine()}-{_config(identity)}-{profile}-{_digest(identity.folder)}-{random}{_SUFFIX}"


def name_lock(wanted: ProxyIdentity) -> str:
    """Return the name of the file that a window locks while it starts a proxy for this config and profile."""
    return f"{_machine()}-{_config(wanted)}-{_digest(wanted.profile or '')}.lock"


def name_answer(wanted: ProxyIdentity, place: str) -> str:
    """Return the name of the file that keeps an answer to `initialize` for this config and profile (`opening`)."""
    return f"{name_lock(wanted).removesuffix('.lock')}-{place}{ANSWER_SUFFIX}"


def is_of_this_machine(name: str) -> bool:
    """Return whether a name is that of a socket made on this machine: home folders may be shared over a network."""
    return name.startswith(f"{_machine()}-") and name.endswith(_SUFFIX)


def choose_sockets(names: Iterable[str], wanted: ProxyIdentity) -> list[str]:
    """Return the sockets that may serve what is wanted, best first: those of the same folder, then of the nearest one
    above it, and of the same profile alone before those of every profile. Where the profile is None, each will do."""
    found = list[tuple[int, str]]()
    places = [wanted.folder]
    while (above := os.path.dirname(places[-1])) not in ("", places[-1]):  # noqa: PTH120 -- quicker to import
        places.append(above)
    folders = list(map(_digest, places))
    configs = {_config(wanted), _config(wanted._replace(config=project_file(wanted.folder), is_project=True))}
    profiles = {_digest(wanted.profile or ""), _ANY}
    for name in names:
        parts = name.removesuffix(_SUFFIX).split("-")
        if not is_of_this_machine(name) or len(parts) != 5 or parts[1] not in configs:
            continue
        if wanted.profile is not None and parts[2] not in profiles:
            continue
        is_project = parts[1] != _config(wanted)
        if is_project and parts[3] != folders[0]:
            continue
        far = folders.index(parts[3]) if parts[3] in folders else len(folders)
        found.append((2 * far + (parts[2] == _ANY) - 4 * is_project, name))
    return [name for _, name in sorted(found)]


def _config(identity: ProxyIdentity) -> str:
    return _digest(("project\0" if identity.is_project else "") + identity.config)


def _digest(text: str) -> str:
    # Only a shortcut: the proxy's greeting says the whole path, and a caller compares it.
    return f"{zlib.crc32(os.fsencode(text)):08x}"


def _machine() -> str:
    return _digest(os.uname().nodename)
