"""`foretool token new`: makes a bearer token for an HTTP client."""

from __future__ import annotations

import json
import secrets

import click
from msgspec import Struct

from foretool.server.commands import output
from foretool.server.commands.options import json_option
from foretool.server.config.tokens import DEFAULT, digest

BYTES = 32
"""Random bytes of a token, twice of what cannot be guessed."""


class NewToken(Struct, frozen=True):
    """A token, and its entry for `foretool.tokens`."""

    token: str
    entry: dict[str, object]


@click.group("token")
def command() -> None:
    """Make bearer tokens for clients over HTTP."""


@command.command("new")
@click.option("--name", default="client", show_default=True, metavar="NAME", help="What you call it in the config.")
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="NAME",
    help=f"A profile that it opens; give it once for each. {DEFAULT!r} is the list at /mcp, '*' is all.  [default: *]",
)
@json_option
def new(name: str, profiles: tuple[str, ...], as_json: bool) -> int:
    """Print a new random token, and the entry that lets it in.

    The token is shown only once. The entry holds its SHA-256, so that nobody who reads the config learns the token.
    Writes no file.
    """
    if not name or not name.isprintable():
        raise click.BadParameter("expected a name that can be printed", param_hint="--name")
    token = secrets.token_urlsafe(BYTES)
    entry: dict[str, object] = {"name": name, "sha256": digest(token), "profiles": list(profiles) or ["*"]}
    return output.show(NewToken(token, entry), as_json, _print)


def _print(made: NewToken) -> None:
    output.say("The token, which is not shown again:", "bold")
    click.echo(f"\n{made.token}\n")
    output.say('Add to the "foretool" block of the config; a running foretool reads it:')
    click.echo(f'\n"tokens": [\n  {_lines(made.entry)}\n]\n')
    output.say("The client sends it with every request, as the header Authorization: Bearer ...")


def _lines(entry: dict[str, object]) -> str:
    inner = ",\n    ".join(
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()
    )
    return f"{{\n    {inner}\n  }}"
