"""The keyring of the system: what `${keyring:NAME}` in the config means, and where sign-ins keep their secrets.

The values of the config stand under names that begin with `secret:`, so that no entry of a config can read a sign-in.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Any, Final

_VARIABLE: Final = "FORETOOL_KEYRING"
"""`off` uses no keyring."""
SERVICE: Final = "foretool"
"""Under which name the keyring keeps our entries."""
_REFERENCE: Final = re.compile(r"(?<!\$)\$\{keyring:([^{}]+)\}")
_PREFIX: Final = "secret:"


class KeyringError(Exception):
    """The keyring gives or takes no value; the message says why, and holds no secret."""


def open_keyring() -> Any:
    """Return the keyring of the system. Raises `KeyringError` where there is none that keeps secrets."""
    import keyring  # a fifth of a second; only a config or a sign-in with a secret needs it

    _find_session_bus()
    ring = keyring.get_keyring()
    if getattr(ring, "priority", 0) < 1 or type(ring).__module__.startswith("keyrings.alt"):
        raise KeyringError("no keyring works here")
    return ring


def is_off(environ: Mapping[str, str]) -> bool:
    """Return whether the user wants no keyring."""
    return environ.get(_VARIABLE, "") == "off"


def check_keyring(environ: Mapping[str, str]) -> None:
    """Raise `KeyringError` where no keyring keeps secrets."""
    with _told(environ):
        pass


def read_value(name: str, environ: Mapping[str, str]) -> str:
    """Return the value of `${keyring:name}`. May wait for the user to unlock the keyring. Raises `KeyringError`."""
    value = None
    with _told(environ) as ring:
        value = ring.get_password(SERVICE, f"{_PREFIX}{name}")
    if value is None:
        raise KeyringError("it has no such entry")
    return str(value)


def keep_value(name: str, value: str, environ: Mapping[str, str]) -> None:
    """Keep a value, and read it back. Raises `KeyringError`."""
    with _told(environ) as ring:
        ring.set_password(SERVICE, f"{_PREFIX}{name}", value)
        if ring.get_password(SERVICE, f"{_PREFIX}{name}") != value:
            raise KeyringError("it gives back something else than it got")


def forget_value(name: str, environ: Mapping[str, str]) -> None:
    """Delete a value. Raises `KeyringError`."""
    with _told(environ) as ring:
        ring.delete_password(SERVICE, f"{_PREFIX}{name}")


def keyring_names(text: str) -> frozenset[str]:
    """Return the names of the values that a text reads from the keyring."""
    return frozenset(_REFERENCE.findall(text))


def with_values(entry: Any, environ: Mapping[str, str]) -> Any:
    """Return an entry with the values in place of `${keyring:...}`. Raises `KeyringError`."""
    if isinstance(entry, str):
        return _REFERENCE.sub(lambda found: read_value(found[1], environ), entry)
    if isinstance(entry, Mapping):
        return {key: with_values(each, environ) for key, each in entry.items()}
    return [with_values(each, environ) for each in entry] if isinstance(entry, list) else entry


@contextlib.contextmanager
def _told(environ: Mapping[str, str]) -> Iterator[Any]:
    """Give the keyring, and turn each of its errors into ours."""
    if is_off(environ):
        raise KeyringError(f"{_VARIABLE} is off")
    try:
        yield open_keyring()
    except KeyringError:
        raise
    except Exception as error:  # noqa: BLE001 -- each keyring has exceptions of its own, whose text may hold anything
        raise KeyringError(f"the keyring of this system refuses ({type(error).__name__}); unlock it") from None


def _find_session_bus() -> None:
    """Name the bus of the user's session where a client has started us without that variable (Linux)."""
    if "DBUS_SESSION_BUS_ADDRESS" in os.environ:
        return
    path = f"/run/user/{os.getuid()}/bus"
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid():
            os.environ["DBUS_SESSION_BUS_ADDRESS"] = f"unix:path={path}"
