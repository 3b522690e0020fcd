"""`foretool doctor`: the diagnosis on a screen, with a progress bar while the upstreams start."""

from __future__ import annotations

import logging
import sys
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
from foretool.server.doctor import TIMEOUT_S, Diagnosis, Severity, Told

_MARKS: dict[Severity, tuple[str, str]] = {
    "ok": ("ok", "green"),
    "note": ("note", "dim"),
    "warning": ("warning", "yellow"),
    "error": ("error", "red"),
}


@click.command("doctor")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1, max=3600),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for one upstream.",
)
@config_option
@json_option
def command(path: Path | None, as_json: bool, timeout_s: float) -> int:
    """Check everything, and say what to do.

    Config, programs, storage, names, and every upstream: they are started all at once and ended again, while proxies
    that run are not disturbed. Exit status 1 when something is wrong.
    """
    config = load(path)
    with _quiet(), _progress(config) as told:
        diagnosis = doctor.diagnose(config, timeout_s, told)
    if as_json:
        findings, upstreams = diagnosis.findings, diagnosis.upstreams
        output.emit({"is_well": diagnosis.is_well, "findings": findings, "upstreams": upstreams})
    else:
        _print(diagnosis)
    return int(not diagnosis.is_well)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the log lines that the findings say better."""
    log = logging.getLogger("foretool")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


@contextmanager
def _progress(config: Config) -> Iterator[Told]:
    """A bar on stderr that names the upstreams still awaited; nothing where stderr is no terminal."""
    if not sys.stderr.isatty() or not config.servers:
        yield lambda name: None
        return
    waiting = dict.fromkeys(config.servers)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=output.console(error=True), transient=True) as progress:
        task = progress.add_task("starting upstreams", total=len(waiting))

        def told(name: str) -> None:
            waiting.pop(name, None)
            slowest = output.clean(", ".join(list(waiting)[:3]))
            progress.update(task, advance=1, description=f"waiting for {slowest}" if waiting else "done")

        yield told


def _print(diagnosis: Diagnosis) -> None:
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
        output.table("", columns, rows)
    for finding in diagnosis.findings:
        mark, style = _MARKS[finding.severity]
        output.console().print(Text.assemble((f"{mark:<8}", style), output.clean(f"{finding.area}: {finding.what}")))
        if finding.do:
            output.say(f"        -> {finding.do}")
    counts = {severity: sum(each.severity == severity for each in diagnosis.findings) for severity in _MARKS}
    if counts["error"]:
        output.say(f"{output.plural(counts['error'], 'problem')}, {output.plural(counts['warning'], 'warning')}", "red")
    else:
        output.say(f"All is well, {output.plural(counts['warning'], 'warning')}.", "green")
