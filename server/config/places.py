"""Finds the config file: `--config`, else `FORETOOL_CONFIG`, else the user's own file.

A config starts programs, and the working folder may be a cloned repository. So its `mcp.json` is read only if the user
names it, or if their own file says `"project_config": true`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct

from foretool.server.config.codes import Code
from foretool.server.config.errors import ConfigError, printable_line
from foretool.server.config.variables import expand_tilde

NamedBy = Literal["--config", "FORETOOL_CONFIG", "your own file", "project_config"]

_PROJECT_FILE = Path("mcp.json")


class ConfigPlace(Struct, frozen=True):
    """A config file, and what names it."""

    path: Path
    """Always a full path, because foretool and its children work in different folders."""
    named_by: NamedBy
    ignored: Path | None = None
    """`mcp.json` of the working folder, if it exists and nothing names a config; it is not read."""

    @property
    def notice(self) -> str:
        """One line about the file of the working folder that is not read, or ""."""
        if self.ignored is None:
            return ""
        shown, own = printable_line(str(self.ignored)), printable_line(str(self.path))
        way_out = 'name it with --config to use it, or set "project_config": true in your own file'
        return f"{shown} is not read (foretool uses {own}); {way_out}"


def own_file(environ: Mapping[str, str]) -> Path:
    """Return the path of the user's own file, whether or not it exists."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # A relative folder would be one of the working folder; the XDG specification says to ignore it.
    return Path(base if base.startswith("/") else f"{home_folder(environ)}/.config") / "foretool" / "mcp.json"


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


def find_place(given: Path | None, environ: Mapping[str, str]) -> ConfigPlace:
    """Return the config file. `given` is that of `--config`. Raises `ConfigError` for a relative `FORETOOL_CONFIG`."""
    home = home_folder(environ)
    if given is not None:
        try:
            return ConfigPlace(absolute(Path(expand_tilde(str(given), home))), "--config")
        except OSError:
            problem = "the folder that it starts in is gone; write the full path"
            raise ConfigError(f"--config: {printable_line(str(given))!r}: {problem}", Code.OPTION_WRONG) from None
    if named := environ.get("FORETOOL_CONFIG"):
        path = Path(expand_tilde(named, home))
        if not path.is_absolute():
            found = f"FORETOOL_CONFIG: expected a full path, found {printable_line(named)!r}"
            problem = f"{found}, which is another file in every folder; write the full path"
            raise ConfigError(problem, Code.OPTION_WRONG)
        return ConfigPlace(absolute(path), "FORETOOL_CONFIG")
    own = own_file(environ)
    return ConfigPlace(own, "your own file", find_project_file(own))


def is_own_file(path: Path, environ: Mapping[str, str]) -> bool:
    """Return whether a path leads to the user's own file."""
    return os.path.realpath(path) == os.path.realpath(own_file(environ))


def find_project_file(used: Path) -> Path | None:
    """Return `mcp.json` of the working folder; None if there is none, or if it is the file that is used."""
    try:
        found = _PROJECT_FILE.is_file() and not (used.exists() and _PROJECT_FILE.samefile(used))
        return absolute(_PROJECT_FILE) if found else None
    except OSError:  # the working folder is gone, or may not be entered
        return None


def absolute(path: Path) -> Path:
    """Return the full path, without following links."""
    return Path(os.path.abspath(path))  # noqa: PTH100 -- resolve() would follow links
