"""Builds `foretool.mcpb`, the bundle that Claude Desktop installs with a double click.

`python packaging/bundle.py [FOLDER]` builds the wheel and packs it with the manifest. Claude Desktop's `uv` makes an
environment from the wheel and its requirements at the first start, so the bundle itself has no package of others.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PARTS: Final = ROOT / "packaging" / "mcpb"

PROJECT: Final = """\
[project]
name = "foretool-bundle"
version = "0"
requires-python = ">=3.11"
dependencies = ["foretool"]

[tool.uv.sources]
foretool = {{ path = "{wheel}" }}
"""


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout into a folder. Raises `CalledProcessError`."""
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def pack(wheel: Path, bundle: Path) -> None:
    """Write a bundle with this wheel."""
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as packed:
        for part in ("manifest.json", "main.py"):
            packed.write(PARTS / part, part)
        packed.writestr("pyproject.toml", PROJECT.format(wheel=wheel.name))
        packed.write(wheel, wheel.name)
        packed.write(ROOT / "LICENSE", "LICENSE")


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0] if arguments else "dist")
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        pack(build_wheel(Path(made)), folder / "foretool.mcpb")
    sys.stdout.write(f"wrote {folder / 'foretool.mcpb'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
