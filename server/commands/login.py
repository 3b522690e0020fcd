"""`foretool login` and `logout`: sign in to a remote server in a browser, or with a link that the user opens elsewhere,
and end such a sign-in at the authorization server and here."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import threading
import time
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
from msgspec import Struct
from msgspec.structs import asdict

from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.codes import Code
from foretool.server.config.errors import guess
from foretool.server.config.loader import Config, load
from foretool.server.config.servers import Server, digest_entry
from foretool.server.signin.record import SignIn
from foretool.server.signin.redirect import RedirectError, RedirectReceiver
from foretool.server.signin.tokens import revoke
from foretool.server.signin.vault import KnownSignIn, Vault, VaultError
from foretool.server.system import interrupts
from foretool.storage.engine import StorageError
from foretool.storage.opening import open_existing_store

_PATIENCE_S: Final = 300.0


@click.command("login")
@click.argument("server")
@config_option
@click.option("--no-browser", is_flag=True, help="Print a link instead of opening a browser.")
@click.option(
    "--timeout", "timeout_s", type=float, default=_PATIENCE_S, show_default=True, metavar="S",
    help="How long to wait for you.",
)  # fmt: skip
@click.option("--json-lines", "as_lines", is_flag=True, help="Print a JSON object for each step, for programs.")
def login(path: Path | None, server: str, no_browser: bool, timeout_s: float, as_lines: bool) -> int:
    """Sign in to a remote SERVER (OAuth).

    Opens a browser. Over SSH, and where there is no browser, it prints a link: open it anywhere, and paste the address
    that the browser ends at. A running foretool uses the new token at once. `foretool status` shows who is signed in,
    `foretool logout` signs out.
    """
    config = load(path)
    chosen = find_server(config, server)
    vault = Vault.own()
    asking = _Asking(chosen.name, is_headless=no_browser or not has_browser(), as_lines=as_lines)
    from foretool.server.signin.flow import SignInError, sign_in

    async def run() -> SignIn:
        async with asyncio.timeout(timeout_s):
            return await sign_in(chosen, vault, asking.show_link)

    try:
        record = interrupts.run(run())
        vault.save(chosen, record)
    except SignInError as error:
        return complain(f"{chosen.name}: {error} [{Code.SIGN_IN_FAILED}]", WRONG)
    except VaultError as error:
        return complain(f"{chosen.name}: {error} [{Code.SIGN_IN_NOT_KEPT}]", WRONG)
    except TimeoutError:
        problem = f"no answer within {timeout_s:g} s; run foretool login {shlex.quote(chosen.name)} again"
        return complain(f"{chosen.name}: {problem} [{Code.SIGN_IN_FAILED}]", WRONG)
    _forget_failure(config, chosen)
    known = vault.describe(chosen)
    assert known is not None
    if as_lines:
        click.echo(json.dumps({"event": "signed_in", **asdict(known)}))
    else:
        _print(known)
    return 0


def _forget_failure(config: Config, server: Server) -> None:
    """Have the next command or proxy start a server that failed for want of a sign-in."""
    with suppress(StorageError), open_existing_store(config.storage) as store:
        store.serving.clear_failure(server.name, digest_entry(server))


def find_server(config: Config, name: str) -> Server:
    """Return the server to sign in to. Raises `ClickException` where that makes no sense."""
    if name in config.broken:
        raise click.ClickException(f"{config.broken[name]}")
    server = config.servers.get(name)
    remote = ", ".join(each.name for each in config.servers.values() if each.type != "stdio") or "none"
    if server is None:
        raise click.ClickException(
            f"{config.path}: no server {name!r}{guess(name, config.servers)}; remote ones: {remote}"
        )
    if server.type == "stdio":
        raise click.ClickException(
            f"{name}: it is a program of this machine, which gets credentials from env; remote servers: {remote}"
        )
    if not server.may_sign_in:
        raise click.ClickException(
            f"{name}: its headers in {config.path} hold an Authorization; remove that line to sign in instead"
        )
    return server


def has_browser() -> bool:
    """Return whether a browser of this machine can be opened before the user."""
    if os.environ.get("SSH_CONNECTION") or os.environ.get("SSH_TTY"):
        return False
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return bool(os.environ.get("BROWSER"))
    return True


class _Asking:
    """Brings the link before the user, and takes an address that they paste."""

    def __init__(self, server: str, *, is_headless: bool, as_lines: bool) -> None:
        self._server = server
        self._is_headless = is_headless
        self._as_lines = as_lines

    async def show_link(self, link: str, receiver: RedirectReceiver) -> None:
        if self._as_lines:
            click.echo(json.dumps({"event": "link", "server": self._server, "url": link}))
        elif self._is_headless or not await asyncio.to_thread(webbrowser.open, link):
            click.echo(f"Open this link in a browser, on any machine:\n\n{output.printable_text(link)}\n")
            click.echo("When the browser then shows an error or a page of 127.0.0.1, copy its")
            click.echo("whole address and paste it here:")
        else:
            click.echo(
                f"A browser was opened to sign in to {output.printable_text(self._server)}. If you see none,"
                " open this link:"
            )
            click.echo(f"\n{output.printable_text(link)}\n")
        if not sys.stdin.closed:
            loop = asyncio.get_running_loop()
            # A thread that waits for a line cannot be ended; as a daemon it ends with the process.
            threading.Thread(target=self._read_pasted, args=(loop, receiver), daemon=True).start()

    def _read_pasted(self, loop: asyncio.AbstractEventLoop, receiver: RedirectReceiver) -> None:
        for line in sys.stdin:
            if line.strip():
                loop.call_soon_threadsafe(self._give, receiver, line)

    def _give(self, receiver: RedirectReceiver, line: str) -> None:
        try:
            receiver.give(line)
        except RedirectError as error:
            click.echo(f"{error}. Paste it here:", err=True)


def _print(known: KnownSignIn) -> None:
    output.say(f"Signed in to {known.server} ({known.issuer}), {say_until(known)}.", "green")
    where = "the keyring of this system" if known.kept == "keyring" else "a file that only you can read"
    output.say(f"The token is kept in {where}. A running foretool uses it at once.")


def say_until(known: KnownSignIn) -> str:
    """Say how long a sign-in lasts."""
    if known.is_renewed:
        return "renewed by itself"
    if not known.expires_at:
        return "until the server ends it"
    is_over = known.expires_at <= time.time()
    return f"ended {output.ago(known.expires_at)}" if is_over else f"until {output.when(known.expires_at)}"


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
def logout(path: Path | None, server: str, as_json: bool) -> int:
    """Sign out of a remote SERVER.

    Ends the token at the authorization server, if that can be asked to, and removes it from this machine.
    """
    chosen, vault = find_server(load(path), server), Vault.own()
    is_revoked = False
    try:
        record = vault.load(chosen)
        if record is not None:
            is_revoked = interrupts.run(revoke(record))
    except VaultError as error:
        click.echo(f"{error}", err=True)
    was_signed_in = vault.remove(chosen)
    return output.show(LoggedOut(chosen.name, was_signed_in, is_revoked), as_json, _print_end)


def _print_end(done: LoggedOut) -> None:
    if not done.was_signed_in:
        output.say(f"You were not signed in to {done.server}.")
    elif done.is_revoked:
        output.say(f"Signed out of {done.server}, and its token was ended there.")
    else:
        output.say(
            f"Signed out of {done.server} on this machine. The authorization server was not told, or did not answer:"
            " its token stays valid until it expires, or until you end it on the website of the server."
        )
