"""Draws small line charts side by side as one SVG. It needs no library, and the file can be diffed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

Lines = Mapping[str, Sequence[float]]
"""By name, the values from left to right."""

COLOURS = {"frozen, off": "#9aa5b1", "frozen, on": "#1f6feb", "growing, off": "#d9b382", "growing, on": "#c2410c"} | {
    "growing+prompts, off": "#a7c7a1",
    "growing+prompts, on": "#15803d",
}
WIDTH, HEIGHT, GAP, LEFT, TOP = 250, 170, 46, 46, 58


def svg(title: str, panels: Mapping[str, tuple[Sequence[float], Lines]], unit: str, most: float | None = None) -> str:
    """`panels`: by their title, the places on the x axis and the lines; `unit` says what y is; `most`: its end."""
    top = most or 1.1 * max(max(line) for _, lines in panels.values() for line in lines.values())
    wide = LEFT + len(panels) * (WIDTH + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {TOP + HEIGHT + 62}" font-family="sans-serif"'
        ' font-size="11" fill="#24292f">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-size="13" font-weight="bold">{escape(title)}</text>',
    ]
    for number, (name, (places, lines)) in enumerate(panels.items()):
        parts += _panel(LEFT + number * (WIDTH + GAP), name, places, lines, top, unit)
    names = list(dict.fromkeys(name for _, lines in panels.values() for name in lines))
    for number, name in enumerate(names):
        at = LEFT + number * 150
        parts.append(f'<line x1="{at}" y1="34" x2="{at + 18}" y2="34" stroke="{_colour(name)}" stroke-width="3"/>')
        parts.append(f'<text x="{at + 24}" y="38">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _panel(left: int, name: str, places: Sequence[float], lines: Lines, top: float, unit: str) -> list[str]:
    bottom, last = TOP + HEIGHT, max(places)
    parts = [f'<text x="{left}" y="{TOP - 4}" font-weight="bold">{escape(name)}</text>']
    for step in range(5):
        value = top * step / 4
        y = bottom - HEIGHT * step / 4
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{left + WIDTH}" y2="{y:.1f}" stroke="#e1e4e8"/>')
        said = f"{100 * value:.0f} %" if unit == "share" else f"{value:,.0f}"
        parts.append(f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end" fill="#57606a">{said}</text>')
    for place in (places[0], places[len(places) // 2], last):
        x = left + WIDTH * place / last
        parts.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle" fill="#57606a">{place:.0f}</text>')
    parts.append(f'<text x="{left + WIDTH / 2}" y="{bottom + 31}" text-anchor="middle">tasks done</text>')
    for each, values in lines.items():
        points = " ".join(
            f"{left + WIDTH * place / last:.1f},{bottom - HEIGHT * min(value / top, 1.0):.1f}"
            for place, value in zip(places, values, strict=False)
        )
        parts.append(f'<polyline points="{points}" fill="none" stroke="{_colour(each)}" stroke-width="2"/>')
    return parts


def _colour(name: str) -> str:
    return COLOURS.get(name, "#24292f")
