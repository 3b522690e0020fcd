"""Fuzzes the readers of bytes from outside with atheris, guided by coverage.

    python -m bench.fuzz TARGET [--seconds 300] [--corpus FOLDER]
    python -m venv fuzz && fuzz/bin/pip install -e . numpy atheris && fuzz/bin/python -m bench.fuzz messages

TARGET is one of `targets.py`. An input that reaches new code is kept in the corpus. An input that breaks a promise is
written there as `crash-...`, and the run ends with status 77. The output is one JSON object: executions, coverage
(edges), features, corpus. Instrumented are foretool's own code and, for models, the Python parts of the unpackers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.options import make_parser

NAMES = ("messages", "events", "configs", "documents", "models")
_STATUS = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)/")
_FOUND = re.compile(r"Uncaught Python exception[\s\S]*?(?=\n==)")


def be_fuzzer(name: str, arguments: Sequence[str]) -> None:
    """Become the fuzzer; this never returns."""
    import atheris  # type: ignore[import-untyped]

    with atheris.instrument_imports(include=["foretool", "zipfile", "numpy.lib"]):
        from bench.fuzz import targets
    atheris.Setup([sys.argv[0], *arguments], targets.TARGETS[name])
    atheris.Fuzz()


def run_fuzzer(name: str, seconds: int, corpus: Path) -> dict[str, Any]:
    """Run the fuzzer in another process, and read its figures."""
    options = [
        f"-max_total_time={seconds}",
        "-max_len=4096",
        "-rss_limit_mb=2048",
        "-timeout=25",
        "-print_final_stats=1",
    ]
    options += [f"-artifact_prefix={corpus}/", str(corpus)]
    command = [sys.executable, "-m", "bench.fuzz", name, "--", *options]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    states = _STATUS.findall(done.stderr)
    executed, edges, features, kept = map(int, states[-1]) if states else (0, 0, 0, 0)
    final = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    trouble = _FOUND.search(done.stderr)
    return {
        "test": "fuzz",
        "target": name,
        "seconds": seconds,
        "executions": int(final[1]) if final else executed,
        "coverage": edges,
        "features": features,
        "corpus": kept,
        "status": done.returncode,
        "found": trouble[0][-1500:] if trouble else "" if done.returncode == 0 else done.stderr[-1500:],
    }


def write_seeds(name: str, corpus: Path) -> None:
    from bench.fuzz import targets

    corpus.mkdir(parents=True, exist_ok=True)
    for at, each in enumerate(targets.SEEDS[name]):
        (corpus / f"seed-{at}").write_bytes(each)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments; with options of libFuzzer after `--`, become the fuzzer."""
    words = list(sys.argv[1:] if argv is None else argv)
    if "--" in words:
        be_fuzzer(words[0], words[words.index("--") + 1 :])
    parser = make_parser("bench.fuzz", __doc__)
    parser.add_argument("target", choices=NAMES)
    parser.add_argument("--seconds", type=int, default=300, help="default %(default)s")
    parser.add_argument("--corpus", type=Path, help="default: a folder that is thrown away")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="bench-fuzz-") as place:
        corpus = (arguments.corpus or Path(place) / "corpus").resolve()
        write_seeds(arguments.target, corpus)
        found = run_fuzzer(arguments.target, arguments.seconds, corpus)
    print(json.dumps(found))
    sys.exit(found["status"])


if __name__ == "__main__":
    main()
