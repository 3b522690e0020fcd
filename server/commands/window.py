"""`foretool serve` on stdio as a client starts it: one more window of a shared proxy.

Every window stays in this file and `local/relay` for as long as it is open, so they import nothing that takes memory.
Everything that cannot be shared goes to `serving`.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    from foretool.server.local.opening import Opening

_LOOK_S: Final = 0.05
"""How long a window that shares no proxy waits for its client's first line before it loads anything."""


def serve_window(arguments: Sequence[str]) -> int | None:
    """Serve a client on stdio, through a proxy that windows share unless the options say `--alone`. Returns the exit
    status; None for what `serving` has to look into: wrong options, a config that shares nothing, a person's terminal.
    """
    options = read_options(arguments)
    if options is None or "--http" in options:
        return None
    if sys.stdin is None or sys.stdin.isatty():
        return None  # no client, but a person, to whom `serving` speaks
    from foretool.server.local.places import find_folder

    folder = find_folder(os.environ)
    config = find_config(options.get("--config"), os.environ)
    if folder is None or config is None or not may_share(config, options):
        return None
    from foretool.server.local.opening import KeptAnswers, Opening
    from foretool.server.local.places import ProxyIdentity

    wanted = ProxyIdentity.own(config, options.get("--profile", ""), is_project=False)
    opening = Opening(KeptAnswers(folder, wanted))
    if "--alone" in options:
        opening.wait(_LOOK_S)
        return _serve_alone(options, opening)
    from foretool.server.local.relay import Finder, Relay, Started, Unshared, WindowEnded

    finder = Finder(folder, wanted, opening)
    try:
        return Relay(finder, opening).run(finder.find())
    except Unshared as reason:
        if text := str(reason):
            sys.stderr.write(f"foretool: WARNING: this window has a proxy of its own: {text}\n")
        return _serve_alone(options, opening)
    except WindowEnded as end:
        return end.status
    except Started as start:
        gc.disable()  # until clients are answered, as in `cli`
        from foretool.server.commands import serving

        return serving.run_shared_proxy(serving.options_of(options), folder, start.first, start.lock)


def _serve_alone(options: Mapping[str, str], opening: Opening) -> int:
    gc.disable()
    from foretool.server.commands import serving

    return serving.serve(serving.options_of(options), opening)


def read_options(arguments: Sequence[str]) -> dict[str, str] | None:
    """Read a correct `serve` command line. Returns None for any other, which is left to click."""
    if not arguments or arguments[0] != "serve":
        return None
    found: dict[str, str] = {}
    rest = list(arguments[1:])
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name == "--alone" and not equals:
            found[name] = ""
            continue
        if name not in ("--config", "--profile", "--http"):
            return None
        if not equals:
            # As in click, the next word is the value, but `--http` may stand alone before another option.
            if rest and not (name == "--http" and rest[0].startswith("-")):
                value = rest.pop(0)
            elif name != "--http":
                return None
        found[name] = value
    return found


def find_config(given: str | None, environ: Mapping[str, str]) -> str | None:
    """Return the full path of the config file, as `config.files.find_place` does; None where that would complain."""
    home, base = environ.get("HOME", ""), environ.get("XDG_CONFIG_HOME", "")
    if not home.startswith("/"):
        return None
    named = environ.get("FORETOOL_CONFIG") if given is None else given
    path = named or f"{base if base.startswith('/') else f'{home}/.config'}/foretool/mcp.json"
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    if given is None and not path.startswith("/"):
        return None
    try:
        return os.path.abspath(path)  # noqa: PTH100 -- pathlib takes memory
    except OSError:  # the working folder is gone
        return None


def may_share(config: str, options: Mapping[str, str]) -> bool:
    """Return whether windows of this config may share a proxy. A file that says nothing about it is not parsed."""
    try:
        with open(config, "rb") as file:  # noqa: PTH123 -- pathlib takes memory
            text = file.read()
    except OSError:
        return False  # `serving` explains it
    if b'"share"' not in text and b'"project_config"' not in text:
        return True
    from foretool.server.commands.serving import shares

    return shares(options)
