"""The packs, and what the core takes from each: named as text here, imported when a command or a setting asks for it.

The core imports no pack; a pack imports the core. A contract in `pyproject.toml` holds both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

COMMANDS_OF_PACKS: Final[Mapping[str, str]] = dict.fromkeys(
    ("learn", "enrich", "export-priors", "import-priors"), "foretool.learning.commands"
)
"""By the name of a command: the package whose module of the same name has it."""
