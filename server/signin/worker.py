"""Runs `foretool login` as a short process of its own, which loads the SDK and ends again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from foretool.server.system.processes import WORKER_FOLDER, worker_command
from foretool.server.trust.text import one_line, visible

_MACHINE_S: Final = 40.0
"""Longest time in which a machine signs in."""
_PERSON_S: Final = 600.0
"""Longest time in which a person signs in by a link that the client shows."""
_LINK_S: Final = 40.0
"""Longest wait for the link; nobody wants to wait for an answer for longer."""
_MOST_LINE: Final = 65_536
MOST_SAID: Final = 500
"""Characters of its stderr that the log gets."""

log = logging.getLogger("foretool.signin")


async def sign_in_machine(server: str, config: Path) -> bool:
    """Sign in with the credentials of the config. Returns whether that succeeded."""
    async with _login(server, config, _MACHINE_S) as process:
        assert process.stdout is not None
        _, said = await asyncio.gather(process.stdout.read(), _last_words(process))
        await process.wait()
    if process.returncode:
        log.warning("%s", said)
    return process.returncode == 0


class LinkSignIn:
    """One sign-in by a link that a client shows to its user."""

    def __init__(self, server: str, config: Path) -> None:
        self._server = server
        self._config = config
        self._link: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())

    @property
    def is_over(self) -> bool:
        return self._task.done()

    async def link(self) -> str:
        """Return the link, "" if there is none."""
        try:
            async with asyncio.timeout(_LINK_S):
                return await asyncio.shield(self._link)
        except TimeoutError:
            return ""

    async def finished(self) -> None:
        """Wait until the user has answered, or the time is over."""
        await asyncio.wait([self._task])

    async def stop(self) -> None:
        """End the process that waits for the user."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            async with _login(self._server, self._config, _PERSON_S) as process:
                _, said = await asyncio.gather(self._read_events(process), _last_words(process))
                await process.wait()
            if process.returncode:
                log.warning("%s", said)
        except (OSError, ValueError) as error:
            log.warning("server %r: the sign-in could not be started (%s)", self._server, type(error).__name__)
        finally:
            if not self._link.done():
                self._link.set_result("")

    async def _read_events(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            with contextlib.suppress(ValueError, KeyError, TypeError):
                found = json.loads(line)
                if found["event"] == "link" and not self._link.done():
                    self._link.set_result(str(found["url"]))


async def _last_words(process: asyncio.subprocess.Process) -> str:
    """Read stderr to its end, so that the process never waits for a reader, and return its last characters.

    They may be words of the authorization server, so they come back as one line.
    """
    assert process.stderr is not None
    said = b""
    while piece := await process.stderr.read(_MOST_LINE):
        said = (said + piece)[-MOST_SAID:]
    return one_line(visible(said.decode(errors="replace")))[-MOST_SAID:]


@contextlib.asynccontextmanager
async def _login(server: str, config: Path, patience_s: float) -> AsyncIterator[asyncio.subprocess.Process]:
    words = (
        "login",
        "--config",
        str(config),
        "--json-lines",
        "--no-browser",
        "--timeout",
        f"{patience_s:g}",
        "--",
        server,
    )
    process = await asyncio.create_subprocess_exec(
        *worker_command("foretool", *words), cwd=WORKER_FOLDER, env=dict(os.environ), limit=_MOST_LINE,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            await process.wait()
