"""Servers and folders with skills."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from fakes import Asked, FakeUpstream, Json

EXTENSION = "io.modelcontextprotocol/skills"


def main_file(name: str, description: str, body: str = "Do it.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n"


class Skilled(FakeUpstream):
    """Serves the files that it is given as resources, and says which of them are skills."""

    files: dict[str, str]
    unlisted: set[str]
    """Skills that no list has."""
    dynamic: set[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.files, self.unlisted, self.dynamic = {}, set(), set()
        self.capabilities = {"tools": {}, "resources": {}, "extensions": {EXTENSION: {"directoryRead": True}}}
        self.scripts |= {
            "skills/list": lambda asked: asked.reply(
                {"skills": [self.described(uri) for uri in self.mains() if uri not in self.unlisted]}
            ),
            "skills/get": self._get,
            "resources/list": lambda asked: asked.reply(
                {"resources": [{"uri": uri, "name": uri.rpartition("/")[2]} for uri in self.files]}
            ),
            "resources/read": self._read,
        }

    def having(self, name: str, description: str, body: str = "Do it.", **files: str) -> Skilled:
        """Add a skill, or change it; names of further files are written with `__` for a dot."""
        root = f"skill://{name}"
        self.files[f"{root}/SKILL.md"] = main_file(name.rpartition("/")[2], description, body)
        self.files |= {f"{root}/{each.replace('__', '.')}": text for each, text in files.items()}
        return self

    def mains(self) -> list[str]:
        return [uri for uri in self.files if uri.endswith("/SKILL.md")]

    def described(self, uri: str) -> Json:
        root = uri.removesuffix("SKILL.md")
        lines = self.files[uri].split("---\n")[1].splitlines()
        files: Any = [
            {"uri": each, "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", "size": len(text.encode())}
            for each, text in self.files.items()
            if each.startswith(root)
        ]
        about = dict(line.split(": ", 1) for line in lines)
        return {"uri": uri, "frontmatter": about, "resources": "dynamic" if uri in self.dynamic else files}

    def _get(self, asked: Asked) -> None:
        if asked.params["uri"] in self.mains():
            asked.reply({"skill": self.described(asked.params["uri"])})
        else:
            asked.fail(-32602, "no such skill")

    def _read(self, asked: Asked) -> None:
        uri = asked.params["uri"]
        if uri in self.files:
            asked.reply({"contents": [{"uri": uri, "mimeType": "text/markdown", "text": self.files[uri]}]})
        else:
            asked.fail(-32602, "Resource not found")


def write_skill(folder: Path, name: str, description: str, body: str = "Do it.", **files: str) -> Path:
    """Write a skill into a folder of skills; return its folder."""
    place = folder / name
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text(main_file(name, description, body))
    for each, text in files.items():
        (place / each.replace("__", ".")).write_text(text)
    return place
