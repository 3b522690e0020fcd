"""One class of the set BFCL, multi turn, as a server on stdio: its own code, run from its package (Apache-2.0).

    PYTHONPATH=ROOT python -m bench.servers.bfcl PACKAGE CLASS FOLDER

PACKAGE: where `bfcl-eval` and `mpmath` are installed. FOLDER holds `task.json`, the task at work as the set has it,
with `run` beside it: the class begins anew with each run. Every call is appended to `calls.txt` there, as the set's
checker reads it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.servers import echo

Json = dict[str, Any]

DOCS: Final = "bfcl_eval/data/multi_turn_func_doc"
TYPES: Final = {"dict": "object", "float": "number", "tuple": "array", "any": ""}


def load(package: Path) -> tuple[Callable[..., tuple[list[str], Json]], dict[str, str]]:
    """The set's own function that runs calls, and the file of definitions of each class."""
    sys.path.append(str(package))
    from bfcl_eval.constants.executable_backend_config import (  # type: ignore[import-not-found]
        MULTI_TURN_FUNC_DOC_FILE_MAPPING as files,
    )
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import (  # type: ignore[import-not-found]
        execute_multi_turn_func_call as run,
    )

    return run, files


def as_schema(given: Any) -> Any:
    """A JSON schema for the types of the set, which has Python's names."""
    if isinstance(given, list):
        return [as_schema(each) for each in given]
    if not isinstance(given, dict):
        return given
    schema = {key: as_schema(value) for key, value in given.items()}
    if isinstance(kind := schema.get("type"), str) and kind in TYPES:
        schema["type"] = TYPES[kind]
        schema = {key: value for key, value in schema.items() if value != ""}
    return schema


def read_tools(package: Path, file: str) -> list[Json]:
    """The definitions of one class."""
    lines = (package / DOCS / file).read_text("utf-8").splitlines()
    each = [json.loads(line) for line in lines if line.strip()]
    return [
        {"name": tool["name"], "description": tool["description"], "inputSchema": as_schema(tool["parameters"])}
        for tool in each
    ]


def as_text(name: str, arguments: Json) -> str:
    """A call as the set writes it: `cd(folder='document')`."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def main(package: Path, kind: str, folder: Path) -> None:
    """Serve until stdin closes."""
    run, files = load(package)
    tools = read_tools(package, files[kind])

    def call(name: str, arguments: Json) -> str:
        said = as_text(name, arguments)
        with (folder / "calls.txt").open("a", encoding="utf-8") as log:
            log.write(json.dumps(said) + "\n")
        task = json.loads((folder / "task.json").read_text("utf-8"))
        results, _ = run([said], task["initial_config"], [kind], task["run"], task["id"])
        return results[0]

    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        if request["method"] == "tools/call":
            params = request["params"]
            text = call(params["name"], params.get("arguments") or {})
            reply: Json = {"result": {"content": [{"type": "text", "text": text}]}}
        else:
            reply = echo.answer(kind, tools, request)
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
