"""`foretool open`: shows a copy of the storage file in Datasette, to one person."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import click

from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option
from foretool.server.config.loader import load
from foretool.storage.opening import copy_store
from foretool.storage.places import ServerAddress

ONLY_YOU = {"allow": {"id": "root"}, "title": "foretool"}
"""What Datasette is told: only who has the link sees anything, since every user of the machine reaches its port."""


@click.command("open")
@click.option("--port", type=click.IntRange(0, 65_535), default=8001, show_default=True, help="The port on loopback.")
@click.option("--no-browser", is_flag=True, help="Print the link only.")
@config_option
def command(path: Path | None, port: int, no_browser: bool) -> int:
    """Open a copy of your records in Datasette, to query them.

    The copy is of this moment, cannot change your records, and is deleted when you press Ctrl-C. The link that
    Datasette prints lets one person in. docs/data.md describes the tables and has queries to begin with.
    """
    storage = load(path).storage
    if isinstance(storage, ServerAddress):
        return complain(f"your records are in {storage}, not in a file; look at them with psql", WRONG)
    program = shutil.which("datasette")
    if program is None:
        return complain(
            "Datasette is not installed: `uv tool install datasette`, `pipx install datasette` or `pip install"
            " datasette`, then run this again",
            WRONG,
        )
    if not storage.exists():
        return complain(f"{storage} does not exist yet; the first proxy creates it", WRONG)
    with tempfile.TemporaryDirectory(prefix="foretool-open-") as folder:
        copy, rules = Path(folder, "foretool.db"), Path(folder, "metadata.json")
        copy_store(storage, copy)
        rules.write_text(json.dumps(ONLY_YOU), "utf-8")
        output.say(f"A copy of {storage} is open until you press Ctrl-C; open the link with the token:")
        words = [program, "serve", "--immutable", str(copy), _rules_option(program), str(rules), "--root"]
        words += ["--host", "127.0.0.1", "--port", str(port), *(() if no_browser else ("--open",))]
        return _run(words)


def _rules_option(program: str) -> str:
    """Return the option under which this version reads who may see what; it moved with version 1."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    return "--metadata" if ", version 0." in said else "--config"


def _run(words: list[str]) -> int:
    """Run Datasette until it ends or the user ends it."""
    # Ctrl-C reaches it as well; SIGTERM would leave it behind.
    process = subprocess.Popen(words, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return int(process.wait() > 0)
    except KeyboardInterrupt:
        process.wait()
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)
        if process.poll() is None:
            process.kill()
            process.wait()
