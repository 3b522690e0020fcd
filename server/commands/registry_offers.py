"""What `foretool add` shows and asks of a server in the MCP Registry, before anything of it is run."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

import click
from click import UsageError

from foretool.server.commands import output
from foretool.server.setup import mcp_registry
from foretool.server.setup.installation import program_hint
from foretool.server.setup.masking import describe_entry
from foretool.server.setup.mcp_registry import SHOWN, Offer, RegistryListing, RequiredValue
from foretool.server.setup.pasted import NewServer

_DESCRIPTION: Final = 200
"""Characters of a description that are shown."""


def search_registry(registry: str, words: str, as_json: bool) -> int:
    """List the servers that fit some words. Returns the exit status. Raises `RegistryError`."""
    if not words:
        raise UsageError("--search needs words to look for")
    base = mcp_registry.address_of(registry, os.environ)
    found = mcp_registry.find_listings(base, words, mcp_registry.fetch_url)
    if as_json:
        output.emit(found)
        return int(not found)
    for each in found[:SHOWN]:
        output.say(each.name, "bold")
        kinds = ", ".join(dict.fromkeys(offer.kind for offer in each.offers)) or "cannot be added"
        output.say(f"  {each.version or '?'} ({kinds}): {output.shorten(each.description, _DESCRIPTION)}")
    if len(found) > SHOWN:
        output.say(f"{len(found) - SHOWN} more fit; name more of the server.")
    if not found:
        output.say(f"No server's name contains {words!r}. The registry looks at names alone.")
    else:
        output.say("To add one: foretool add NAME. What it runs is shown first.")
    return int(not found)


def offer_server(registry: str, wanted: str, name: str, kind: str | None, *, agreed: bool, as_json: bool) -> NewServer:
    """Show what a server of the registry would run, ask, and return it. Raises `RegistryError`, `PasteError`,
    `UsageError` and `Abort`."""
    base = mcp_registry.address_of(registry, os.environ)
    listing = mcp_registry.find_listing(base, wanted, mcp_registry.fetch_url)
    offer = mcp_registry.choose_launch(listing, kind or "")
    server = mcp_registry.server_of(listing, offer, name, {})
    if not as_json:
        _show(listing, offer, server)
    if agreed:
        return server
    if as_json or not sys.stdin.isatty():
        raise UsageError(f"there is nobody to ask; look at it with --dry-run, then add --yes: {wanted}")
    if not output.agrees(f"Add it as {server.name}, and run it?"):
        raise click.Abort
    given = {need.name: value for need in offer.needs if (value := _ask(need))}
    return mcp_registry.server_of(listing, offer, name, given)


def _show(listing: RegistryListing, offer: Offer, server: NewServer) -> None:
    output.say(f"{listing.name} {listing.version}", "bold")
    output.say(f"  {output.shorten(listing.description, _DESCRIPTION)}")
    output.say("  These words are its author's, and nobody has checked them.", "dim")
    if listing.status != "active":
        output.say(f"  The registry says that it is {listing.status}.", "yellow")
    if listing.source:
        output.say(f"  source   {listing.source}")
    output.say(f"  {'reaches' if offer.kind == 'remote' else 'package'}  {offer.what}")
    output.say(f"  {'address' if offer.kind == 'remote' else 'runs   '}  {describe_entry(server.entry)}")
    for key, word in (("env", "variable"), ("headers", "header")):
        for each, value in server.entry.get(key, {}).items():
            output.say(f"  {word:<8} {each}: {value}")
    for need in offer.needs:
        output.say(f"  needs    {need.name}{' (secret)' if need.is_secret else ''}{_about(need)}")
        if need.name in os.environ:
            output.say("           It is set in your shell: the server gets that value.", "yellow")
    others = sorted({each.kind for each in listing.offers} - {offer.kind})
    if others:
        output.say(f"  It also comes as {' and '.join(others)}: --use {others[0]}")
    for why in listing.refused:
        output.say(f"  Not offered: {why}", "dim")
    if offer.program and not shutil.which(offer.program):
        output.say(f"  {offer.program} is not on PATH; first {program_hint(offer.program)}.", "yellow")


def _about(need: RequiredValue) -> str:
    choices = f" One of: {', '.join(need.choices)}." if need.choices else ""
    return f": {output.shorten(need.about, _DESCRIPTION)}{choices}" if need.about or choices else ""


def _ask(need: RequiredValue) -> str:
    """Ask for a value; nothing means that the variable stays."""
    hint = f"{need.name} (Enter keeps ${{{need.name}}}, which you export)"
    return str(click.prompt(hint, default="", show_default=False, hide_input=need.is_secret))
