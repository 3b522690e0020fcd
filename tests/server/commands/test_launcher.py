"""The command that entries of clients start."""

import subprocess

from foretool.server.commands.launcher import launcher


def test_the_command_it_prints_starts_this_foretool() -> None:
    done = subprocess.run([*launcher(), "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("foretool, version ")
