"""`foretool service`: has the system start `foretool serve --http` at login, with a file that is shown first."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import click
from click import ClickException
from msgspec import Struct, structs

from foretool.server.checks.clients import needed_variables
from foretool.server.commands import edits, hint, output, upgrade
from foretool.server.commands.exit import WRONG
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.addresses import parse_address
from foretool.server.config.environment import BASIC_NAMES
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config, load
from foretool.server.config.places import find_place
from foretool.server.setup import changes
from foretool.server.setup.changes import Change, ChangeError
from foretool.server.setup.clients import this_machine
from foretool.server.setup.services import VARIABLES, Service, ServiceError, describe_service, path_in
from foretool.server.transports.client.http_rules import list_problems

COPIES: Final = "service"
"""The folder beside the copies of `init` that has what stood at the place of the service's file."""
ASK_S: Final = 10.0

State = Literal["absent", "current", "different"]


class ServiceAnswer(Struct, frozen=True):
    """The service of this user."""

    kind: str
    """`systemd`, `launchd` or `task` (Windows)."""
    path: str
    """The file that the system reads."""
    state: State
    """Whether the file is there, and says what `foretool service install` would write, but for its PATH."""
    is_running: bool | None
    """null if the system cannot be asked."""
    content: str
    """What `foretool service install` writes there."""
    start: list[list[str]]
    """The commands that start it."""
    stop: list[list[str]]
    not_on_path: list[str] = []
    """Programs of servers that this shell finds, and the service does not: its PATH is that of the shell which has
    installed it."""


@click.group("service")
def command() -> None:
    """Start foretool over HTTP at login: systemd, launchd or Windows."""


@command.command("install")
@click.option("--dry-run", is_flag=True, help="Show the file and the commands, and do nothing.")
@click.option("--yes", "-y", "agreed", is_flag=True, help="Ask nothing: write the file and start the service.")
@click.option("--no-start", is_flag=True, help="Write the file, and start nothing.")
@config_option
@json_option
def install(path: Path | None, as_json: bool, dry_run: bool, agreed: bool, no_start: bool) -> int:
    """Write the service's file, and start it.

    Clients then reach foretool at the address "bind" of the config with a token: foretool connect says how. Every
    window and every client shares one proxy, which also runs while no window is open.
    """
    config = load(path)
    if problems := list_problems(config.settings, parse_address(config.settings.bind)):
        raise ClickException(problems[0])
    service = _service(config.path)
    if as_json:
        output.emit(_describe(service, config.path))
        return 0
    _show(service, config)
    if not dry_run and _bytes_of(service) != service.content:
        if not agreed and not _confirmed("\nWrite this file?"):
            return WRONG
        _write(service, config.path)
    if no_start:
        return 0
    output.say("\nTo start it:", "bold")
    return upgrade.run_commands(service.start, "Run this?", agreed=agreed, dry_run=dry_run)


@command.command("uninstall")
@click.option("--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
@click.option("--yes", "-y", "agreed", is_flag=True, help="Ask nothing.")
@click.option("--no-stop", is_flag=True, help="Put back the file, and stop nothing.")
@config_option
@json_option
def uninstall(path: Path | None, as_json: bool, dry_run: bool, agreed: bool, no_stop: bool) -> int:
    """Stop the service, and put back what its file replaced."""
    place = find_place(path, os.environ).path
    service = _service(place)
    if as_json:
        output.emit(_describe(service, place))
        return 0
    if _bytes_of(service) is None:
        output.say(f"There is no service: {edits.short(service.path)} does not exist.")
        return 0
    status = 0
    if not no_stop:
        output.say("To stop it:", "bold")
        status = upgrade.run_commands(service.stop, "Run this?", agreed=agreed, dry_run=dry_run)
    if dry_run:
        output.say(f"{edits.short(service.path)} would be removed.")
        return 0
    if status and not agreed:
        return status
    return _put_back(service, place)


@command.command("status")
@config_option
@json_option
def status(path: Path | None, as_json: bool) -> int:
    """Say whether the service is installed and runs. Exits with 1 if it does not."""
    place = find_place(path, os.environ).path
    service = _service(place)
    answer = structs.replace(_describe(service, place), not_on_path=_find_missing(_bytes_of(service), place))
    if as_json:
        output.emit(answer)
    else:
        _say_status(answer)
    return int(answer.state == "absent" or answer.is_running is False)


def _service(config: Path, path: str = "") -> Service:
    """Return the service, with another PATH than that of this shell if one is given."""
    try:
        launch = [*hint.launcher(), "serve", "--config", str(config.absolute()), "--http"]
        return describe_service(this_machine(), launch, config.absolute(), path)
    except ServiceError as error:
        raise ClickException(str(error)) from None


def _bytes_of(service: Service) -> bytes | None:
    """Return what the file of the service holds; None if there is none."""
    try:
        return service.path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ClickException(f"{service.path}: cannot be read ({error.strerror}); check its permissions") from None


def _state(service: Service, config: Path) -> State:
    """Compare the file with what would be written now, but for PATH, which differs from shell to shell."""
    if (found := _bytes_of(service)) is None:
        return "absent"
    return "current" if found in (service.content, _service(config, path_in(found)).content) else "different"


def _find_missing(found: bytes | None, config: Path) -> list[str]:
    """Return the programs of servers that this shell finds, and the service does not."""
    path = path_in(found or b"")
    if not path:
        return []
    try:
        servers = load(config).servers.values()
    except ConfigError:
        return []  # `foretool doctor` says what is wrong with it
    programs = dict.fromkeys(each.command for each in servers if each.type == "stdio" and os.sep not in each.command)
    return [each for each in programs if shutil.which(each) and not shutil.which(each, path=path)]


def _describe(service: Service, config: Path) -> ServiceAnswer:
    return ServiceAnswer(
        kind=service.kind,
        path=str(service.path),
        state=_state(service, config),
        is_running=_is_running(service),
        content=_text(service),
        start=[list(each) for each in service.start],
        stop=[list(each) for each in service.stop],
    )


def _text(service: Service) -> str:
    return service.content.decode("utf-16" if service.kind == "task" else "utf-8").replace("\r\n", "\n")


def _is_running(service: Service) -> bool | None:
    """Ask the system; None where it has no such command, or does not answer."""
    if shutil.which(service.ask[0]) is None:
        return None
    try:
        return subprocess.run(service.ask, capture_output=True, timeout=ASK_S, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return None


def _show(service: Service, config: Config) -> None:
    found = _bytes_of(service)
    if found == service.content:
        output.say(f"{edits.short(service.path)} is there already and says the same.")
    else:
        only_path = found is not None and _state(service, config.path) == "current"
        what = "gets the PATH of this shell" if only_path else "is new" if found is None else "replaces another file"
        output.say(f"{edits.short(service.path)} {what}:", "bold")
        output.say_lines(_text(service).rstrip())
    wanted = {name for server in config.servers.values() for name in needed_variables(server)} | config.names
    lacking = sorted(name for name in wanted if name in os.environ and name not in BASIC_NAMES)
    if lacking:
        output.say("\nA service has no variables of this shell. Your config reads:", "yellow")
        output.say(f"  {', '.join(lacking)}")
        if service.kind == "systemd":
            output.say(f"Write them into {edits.short(config.path.with_name(VARIABLES))}, one NAME=value a line.")
        else:
            output.say("Write ${keyring:NAME} in their place: foretool init --secrets keyring.")


def _confirmed(question: str) -> bool:
    try:
        if click.confirm(question, default=False):
            return True
    except click.Abort:
        output.say("")
    output.say("Nothing was written.")
    return False


def _write(service: Service, config: Path) -> None:
    before = service.path.read_bytes() if service.path.exists() else None
    try:
        change = Change(service.path, before, service.content, "starts foretool at login")
        changes.apply([change], config.parent / changes.FOLDER / COPIES)
    except ChangeError as error:
        raise ClickException(str(error)) from None
    output.say(f"Written: {edits.short(service.path)}. To take it back: foretool service uninstall")


def _put_back(service: Service, config: Path) -> int:
    """Take back every change that `install` has made, the latest first."""
    copies, done, problems = config.parent / changes.FOLDER / COPIES, 0, list[str]()
    with suppress(ChangeError):  # there is nothing left to take back
        while not problems:
            _, problems = changes.undo(copies)
            done += 1
    if not done:
        where = edits.short(service.path)
        raise ClickException(f"{where}: was not written by foretool service install; delete it by hand")
    for problem in problems:
        output.say(problem, "yellow")
    if not problems:
        what = "is as it was before" if service.path.exists() else "is gone"
        output.say(f"{edits.short(service.path)} {what}.")
    return int(bool(problems))


def _say_status(answer: ServiceAnswer) -> None:
    where = edits.short(Path(answer.path))
    if answer.state == "absent":
        output.say(f"There is no service ({where} does not exist). To make one: foretool service install")
        return
    if answer.state == "different":
        output.say(f"{where} says something else than this foretool would write: foretool service install", "yellow")
    else:
        output.say(f"{where} is up to date.")
        if answer.not_on_path:
            output.say(
                f"This shell finds {', '.join(answer.not_on_path)}, and the service does not, because its PATH is"
            )
            output.say("another one. To give it that of this shell: foretool service install")
    if answer.is_running is None:
        output.say(f"Whether it runs is not known: this system has no working {answer.start[0][0]}.")
    elif answer.is_running:
        output.say("It runs.", "green")
    else:
        output.say(f"It does not run. To start it: {shlex.join(answer.start[-1])}", "red")
