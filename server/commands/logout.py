"""`foretool logout`: ends a sign-in at the authorization server, and forgets it here."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
from msgspec import Struct

from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.login import find_server
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.server.signin.tokens import revoke
from foretool.server.signin.vault import Vault, VaultError


class LoggedOut(Struct, frozen=True):
    """What became of a sign-in."""

    server: str
    was_signed_in: bool
    is_revoked: bool
    """Whether the authorization server has ended the token as well."""


@click.command("logout")
@click.argument("server")
@config_option
@json_option
def command(path: Path | None, server: str, as_json: bool) -> int:
    """Sign out of a remote SERVER.

    Ends the token at the authorization server, if that can be asked to, and removes it from this machine.
    """
    chosen, vault = find_server(load(path), server), Vault.own()
    is_revoked = False
    try:
        record = vault.load(chosen)
        if record is not None:
            is_revoked = asyncio.run(revoke(record))
    except VaultError as error:
        click.echo(f"{error}", err=True)
    try:
        was_signed_in = vault.remove(chosen)
    except VaultError as error:
        return complain(str(error), WRONG)
    return output.show(LoggedOut(chosen.name, was_signed_in, is_revoked), as_json, _print)


def _print(done: LoggedOut) -> None:
    if not done.was_signed_in:
        output.say(f"You were not signed in to {done.server}.")
    elif done.is_revoked:
        output.say(f"Signed out of {done.server}, and its token was ended there.")
    else:
        output.say(
            f"Signed out of {done.server} on this machine. The authorization server was not told, or did not answer:"
            " its token stays valid until it expires, or until you end it on the website of the server."
        )
