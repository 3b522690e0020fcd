"""Options that several commands share."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click
from click.core import ParameterSource

from foretool.server.commands.exit import WRONG
from foretool.server.config.errors import guess
from foretool.server.config.files import find_place
from foretool.server.config.loader import Config


def _tell_of_project_file(context: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    """Say once that `mcp.json` of the working folder is not read. `serve` logs it, and a hook has no reader."""
    if context.info_name not in ("serve", "hint"):
        place = find_place(path, os.environ)
        if place.notice and place.path.exists():
            click.echo(place.notice, err=True)
    return path


def type_again(*without: str) -> str:
    """Return the running command line as it may be typed again, without the options of these names."""
    context = click.get_current_context()
    words = ["foretool", context.info_name or ""]
    for option in context.command.params:
        if context.get_parameter_source(option.name or "") is not ParameterSource.COMMANDLINE or option.name in without:
            continue
        value = context.params[option.name or ""]
        if not isinstance(option, click.Option):
            words += value if isinstance(value, tuple) else [value]
        elif option.is_flag:
            words.append(option.opts[0] if value else option.secondary_opts[0])
        else:
            words += [word for each in (value if option.multiple else [value]) for word in (option.opts[0], each)]
    return shlex.join(str(word) for word in words if word != "")


config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_tell_of_project_file,
    help="The config file.  [default: $FORETOOL_CONFIG, ~/.config/foretool/mcp.json]",
)
"""Arrives as the parameter `path`; `load` accepts None for the default."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
profile_option = click.option("--profile", default="", metavar="NAME", help="Use this profile of the config.")
"""Arrives as "" for all servers."""


def refuse_together(**given: object) -> None:
    """Refuse options of which one alone can be meant. `given`: the value of each, by its name. Raises `UsageError`."""
    names = [f"--{name}" for name, value in given.items() if value]
    if len(names) > 1:
        raise click.UsageError(f"{' and '.join(names)} do not go together")


class UnknownName(click.ClickException):
    """What the user named does not exist."""

    exit_code = WRONG


def require_server(config: Config, name: str, option: str = "") -> None:
    """Refuse a name that no server of the config has. Raises `UnknownName`."""
    if name not in config.prefixes:
        raise UnknownName(f"{option}{lacks_server(config, name)}")


def lacks_server(config: Config, name: str) -> str:
    """Say that a config has no such server, and which may be meant."""
    meant = guess(name, config.prefixes) or f"; it has: {', '.join(config.prefixes) or 'none'}"
    return f"{config.path} has no server {name!r}{meant}"
