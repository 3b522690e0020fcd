"""foretool: the MCP proxy that fore-sees the tool.

In a checkout the code stands in `server/`, `retrieval/` and `storage/` beside this folder; an installation puts them
inside it. The path below lets `import foretool.server` work from a bare checkout as well.
"""

from pathlib import Path

__version__ = "0.1.0"

_checkout = Path(__file__).resolve().parent.parent
if (_checkout / "server" / "proxy.py").is_file() and (_checkout / "pyproject.toml").is_file():
    __path__.append(str(_checkout))
