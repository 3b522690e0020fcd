"""Writes the Homebrew formula out of `pyproject.toml`; `--check` exits with 1 if the written one is stale.

`python packaging/formula.py [--check] [--sdist FILE]`: with the source distribution of a release the formula gets its
checksum; without it, a placeholder that keeps anybody from publishing it. It is a formula for a tap: the core of
Homebrew builds every package from source, and onnxruntime and faiss come as wheels. It was not run on macOS.
"""

from __future__ import annotations

import re
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
FORMULA: Final = ROOT / "packaging" / "homebrew" / "foretool.rb"
OWNER: Final = "owner-to-be-chosen"
NO_CHECKSUM: Final = "0" * 64
"""Stands for the checksum of a source distribution that is not published yet; Homebrew refuses it."""
PYTHON: Final = "3.13"
MOST_DESCRIPTION: Final = 80
"""Characters that `brew audit` takes."""

TEMPLATE: Final = """\
# Made by packaging/formula.py out of pyproject.toml; do not edit. Not run on macOS yet.
class Foretool < Formula
  desc "{description}"
  homepage "https://github.com/{owner}/foretool"
  url "https://files.pythonhosted.org/packages/source/f/foretool/foretool-{version}.tar.gz"
  sha256 "{checksum}"
  license "{licence}"

  depends_on "python@{python}"
  depends_on "uv"

  def install
    system "uv", "venv", "--python", Formula["python@{python}"].opt_bin/"python{python}", libexec
    system "uv", "pip", "install", "--python", libexec/"bin/python", buildpath
    bin.install_symlink libexec/"bin/foretool"
    generate_completions_from_executable(bin/"foretool", shell_parameter_format: :click)
  end

  service do
    run [opt_bin/"foretool", "serve", "--http"]
    keep_alive crashed: true
    environment_variables PATH: std_service_path_env
    log_path var/"log/foretool.log"
    error_log_path var/"log/foretool.log"
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/foretool --version")
    (testpath/"mcp.json").write '{{"mcpServers": {{"gone": {{"command": "no-such-program"}}}}}}'
    assert_match "FT201", shell_output("#{{bin}}/foretool doctor --config #{{testpath}}/mcp.json", 1)
  end
end
"""


def render(checksum: str = NO_CHECKSUM, root: Path = ROOT) -> str:
    """Return the formula. Raises `ValueError` if `brew audit` would refuse its description."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = re.search(r'__version__ = "(.+)"', (root / "foretool" / "_version.py").read_text(encoding="utf-8"))
    assert version is not None
    least = project["requires-python"].removeprefix(">=")
    if tuple(map(int, PYTHON.split("."))) < tuple(map(int, least.split("."))):
        raise ValueError(f"PYTHON: expected {least} or newer, found {PYTHON}; raise it")
    description = project["description"].split(":", 1)[0].removeprefix("The ")
    if len(description) > MOST_DESCRIPTION or description.endswith("."):
        raise ValueError(f"description: expected {MOST_DESCRIPTION} characters without a full stop: {description!r}")
    return TEMPLATE.format(
        description=description, owner=OWNER, version=version[1], checksum=checksum, licence=project["license"],
        python=PYTHON,
    )  # fmt: skip


def main(arguments: list[str]) -> int:
    """Write or check the formula. Returns the exit status."""
    checksum = NO_CHECKSUM
    if "--sdist" in arguments:
        checksum = sha256(Path(arguments[arguments.index("--sdist") + 1]).read_bytes()).hexdigest()
    wanted = render(checksum)
    if "--check" in arguments:
        stale = not FORMULA.exists() or FORMULA.read_text(encoding="utf-8") != wanted
        if stale:
            sys.stderr.write(f"{FORMULA}: is stale; run python packaging/formula.py\n")
        return int(stale)
    FORMULA.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
