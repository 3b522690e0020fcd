"""The benchmarks that need nothing but what is given: `python -m bench`, or `make bench`.

Start-up and a short soak always; over real catalogues and query sets where FORETOOL_DATA names their folder; beside
other proxies where PEERBENCH and PEERS_HOME name theirs. What is left out says so.
"""

from __future__ import annotations

import os
from pathlib import Path

from bench import peers, replay, retrieval, soak, startup

SETS = ("livemcpbench", "mcpbench", "mcptoolbenchpp", "toole_unseen", "apibank")


def over_data(folder: Path) -> None:
    """Whatever of the data is there."""
    catalogs = folder / "mcp_catalogs"
    if catalogs.is_dir():
        replay.main([str(catalogs)])
    for name in SETS:
        if (folder / name).is_dir():
            retrieval.main([str(folder / name)])


def beside_peers(folder: str) -> None:
    """Calls and starts."""
    for kind in ("calls", "startup", "slow"):
        peers.main([kind, "--peerbench", folder])


def main() -> None:
    """Everything that can be run here."""
    startup.main([])
    soak.main(["--calls", "20000"])
    if data := os.environ.get("FORETOOL_DATA"):
        over_data(Path(data))
    else:
        print("left out: catalogues and retrieval; FORETOOL_DATA names no folder")
    if (peerbench := os.environ.get("PEERBENCH")) and os.environ.get("PEERS_HOME"):
        beside_peers(peerbench)
    else:
        print("left out: other proxies; PEERBENCH and PEERS_HOME name no folders")


if __name__ == "__main__":
    main()
