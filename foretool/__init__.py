"""foretool: the MCP proxy that fore-sees the tool.

In a checkout the code stands in `server/`, `retrieval/` and `storage/` beside this folder; an installation puts them
inside it. The path below lets `import foretool.server` work from a bare checkout as well.

The library (`from foretool import Foretool`, docs/library.md) is imported when it is asked for; `serve` never does.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from foretool._version import __version__
    from foretool.server.deferred_tools import DeferredTools
    from foretool.server.library import CallFailed, Foretool, Reply, Result, Step, Tools

__all__ = ["CallFailed", "DeferredTools", "Foretool", "Reply", "Result", "Step", "Tools", "__version__"]

# pathlib takes a third of the memory of a window's relay.
_checkout = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120
if all(map(os.path.isfile, (f"{_checkout}/server/app.py", f"{_checkout}/pyproject.toml"))):
    __path__.append(_checkout)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'foretool' has no attribute {name!r}")
    if name == "__version__":
        from foretool._version import __version__

        return __version__
    if name == "DeferredTools":
        from foretool.server.deferred_tools import DeferredTools

        return DeferredTools
    from foretool.server import library

    return getattr(library, name)
