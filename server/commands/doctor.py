"""`foretool doctor`: prints the findings of `server/doctor.py`, with a progress bar while the upstreams start."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from foretool.server import doctor
from foretool.server.commands import output
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import Config, load
from foretool.server.diagnosis import Diagnosis, Severity
from foretool.server.doctor import TIMEOUT_S
from foretool.server.probing import OnProbed

_STYLES: dict[Severity, str] = {"ok": "green", "note": "dim", "warning": "yellow", "error": "red"}


@click.command("doctor")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1, max=3600),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long one upstream may take to start and list its tools.",
)
@config_option
@json_option
def command(path: Path | None, as_json: bool, timeout_s: float) -> int:
    """Check everything and say what to do about each problem.

    Checks the config, the programs it needs, the storage file, the names of tools, and every upstream. Starts all
    upstreams at once and ends them again. Keeps the tools that they list, so that the next proxy knows them at once;
    running proxies are not disturbed. Exits with 1 if anything is wrong.
    """
    diagnosis = examine(load(path), timeout_s)
    if as_json:
        output.emit({"is_well": diagnosis.is_well, "findings": diagnosis.findings, "upstreams": diagnosis.upstreams})
    else:
        show_diagnosis(diagnosis)
    return int(not diagnosis.is_well)


def examine(config: Config, timeout_s: float = TIMEOUT_S) -> Diagnosis:
    """Run every check, with a progress bar."""
    log = logging.getLogger("foretool")
    before = log.level
    log.setLevel(logging.CRITICAL)  # the findings say the same in better words
    try:
        with _progress_bar(config) as on_probed:
            return doctor.diagnose(config, timeout_s, on_probed)
    finally:
        log.setLevel(before)


@contextmanager
def _progress_bar(config: Config) -> Iterator[OnProbed]:
    """Show on stderr which upstreams are still starting, if stderr is a terminal."""
    is_hidden = not sys.stderr.isatty() or not config.servers
    waiting = dict.fromkeys(config.servers)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.console(error=True), transient=True, disable=is_hidden) as progress:
        task = progress.add_task("starting upstreams", total=len(waiting))

        def on_probed(name: str) -> None:
            waiting.pop(name, None)
            slowest = output.clean(", ".join(list(waiting)[:3]))
            progress.update(task, advance=1, description=f"waiting for {slowest}" if waiting else "done")

        yield on_probed


def show_diagnosis(diagnosis: Diagnosis) -> None:
    """Print what an examination has found."""
    if diagnosis.upstreams:
        rows = [
            (
                each.upstream, Text("ok", "green") if each.is_well else Text("failed", "red"),
                each.version, each.server, each.tools, len(each.dropped), f"{each.tokens:,}",
                f"{each.listed_ms:.0f}" if each.listed_ms else "-",
            )
            for each in diagnosis.upstreams
        ]  # fmt: skip
        columns = ("upstream", "", "protocol", "server", "tools#", "dropped#", "tokens#", "ms#")
        output.table(columns, rows)
    counts = Counter(finding.severity for finding in diagnosis.findings)
    for finding in diagnosis.findings:
        mark = (f"{finding.severity:<8}", _STYLES[finding.severity])
        output.console().print(Text.assemble(mark, output.clean(f"{finding.area}: {finding.what}")))
        if finding.do:
            output.say(f"        -> {finding.do}")
    warnings = output.plural(counts["warning"], "warning")
    if counts["error"]:
        output.say(f"{output.plural(counts['error'], 'problem')}, {warnings}", "red")
    else:
        output.say(f"No problems, {warnings}.", "green")
