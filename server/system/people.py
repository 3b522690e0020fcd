"""Who runs this process: the name that decisions and calls without a token are recorded under."""

from __future__ import annotations

import os
from functools import cache

from foretool.storage.records import Person


@cache
def own_person() -> Person:
    """Return the user of the system who runs this process."""
    number = str(os.geteuid()) if hasattr(os, "geteuid") else ""
    return Person(f"user:{number}", _name() or number)


def _name() -> str:
    try:
        import pwd
    except ImportError:
        return os.environ.get("USERNAME", "")
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container may run under a number without a name
        return ""
