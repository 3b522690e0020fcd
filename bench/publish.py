"""Writes `docs/benchmarks.md` from the files of `bench/results/`: `python -m bench.publish`, or `--check` to compare.

    python -m bench.publish --measured 040_start    # the figures of that file were measured with the code as it is now

A result file holds one claim with its table, how it was measured, the command that prints it again, and a digest of the
code that it measures. A figure whose code has changed since says so on the page.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from bench.options import make_parser

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "bench" / "results"
PAGE: Final = ROOT / "docs" / "benchmarks.md"
HEAD: Final = """\
# Benchmarks

What foretool claims, with the figures, what they were measured against, and the command that prints them again; made
from `bench/results/` by `python -m bench.publish`. A date and a commit say when; † the code has changed since.

Everything ran on two virtual cores with 24 GiB, Python 3.11 and Linux. The other proxies run from their own packages;
the scripts that drive them (peerbench) and the data sets are outside this repository. *Default install* means `pip
install` without extras, with its encoder (minilm-tools). Hit@1 is the share of queries with a needed tool first; square
brackets hold 95 % intervals.
"""


class Result(Struct, forbid_unknown_fields=True):
    """One claim and its figures, as a file of `bench/results/` has them."""

    claim: str
    measured: str
    """What was measured, and against what."""
    mode: str
    """How foretool was installed and run."""
    command: str
    """Commands, and in words in what others differ from them, with "; " between."""
    commit: str
    date: str
    code: list[str]
    """Files and folders of the repository whose change may change the figures."""
    columns: list[str]
    rows: list[list[str]]
    note: str = ""
    digest: str = ""
    """Of the code when the figures were measured; empty where nobody kept it."""

    def write(self) -> str:
        """Return the section of the page."""
        lines = [f"## {self.claim}", "", f"{self.measured} **Mode:** {self.mode}.", ""]
        lines += ["| " + " | ".join(row) + " |" for row in (self.columns, *self.rows)]
        lines.insert(5, "|---" * len(self.columns) + "|")
        commands = ", ".join(f"`{part}`" if part.startswith("python ") else part for part in self.command.split("; "))
        is_current = self.digest == digest_of(self.code)
        age = "" if is_current else " †"
        lines += ["", *([self.note, ""] if self.note else []), f"{commands}, {self.date}, {self.commit}{age}"]
        return "\n".join(lines) + "\n"


def digest_of(paths: Sequence[str]) -> str:
    """Return a digest of what these files and folders hold: names and bytes, without caches."""
    files = sorted(file for path in paths for file in _files(ROOT / path))
    found = hashlib.sha256()
    for file in files:
        found.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return [file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts]


def read_results() -> dict[Path, Result]:
    """Return the results by their files, in the order of the page."""
    return {path: msgspec.json.decode(path.read_bytes(), type=Result) for path in sorted(RESULTS.glob("*.json"))}


def write_page() -> str:
    """Return the whole page."""
    return "\n".join((HEAD, *(result.write() for result in read_results().values())))


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page, or compare it; returns the exit status."""
    parser = make_parser("bench.publish", __doc__)
    parser.add_argument("--check", action="store_true", help="say whether the page is what the results make of it")
    parser.add_argument("--measured", nargs="*", default=[], metavar="NAME", help="results that were measured just now")
    chosen = parser.parse_args(argv)
    for path, result in read_results().items():
        if path.stem in chosen.measured:
            result.digest = digest_of(result.code)
            path.write_bytes(msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
    if not chosen.check:
        PAGE.write_text(write_page(), encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == write_page():
        return 0
    sys.stderr.write("docs/benchmarks.md is not what bench/results/ makes of it; run: python -m bench.publish\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
