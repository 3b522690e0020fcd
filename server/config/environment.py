"""Says which variables of our environment a server gets: a short list, and those that its entry names in `inherit`.

Our environment holds every secret of the user (tokens, cloud keys), and a server is somebody else's program.
"""

import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from foretool.server.config.variables import names_in

BASIC_NAMES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""What every server gets, as the MCP SDKs give it."""
_OWN_SECRETS = ("token", "tokens", "encoder_key", "storage", "seal_keys", "access", "enrich")
"""Settings whose variables hold credentials for foretool itself."""


def own_variables(settings: Any) -> frozenset[str]:
    """Return the names of the variables that hold our own credentials. `settings`: the `foretool` block as written."""
    block = settings if isinstance(settings, dict) else {}
    return names_in(msgspec.json.encode([block.get(key) for key in _OWN_SECRETS]).decode())


def is_pattern(name: str) -> bool:
    """Tell whether an entry of `inherit` is a pattern and not a name."""
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
