"""The lifecycle of a node as a picture, docs/life.svg, from the table of transitions
(`tenure/policy/lifecycle/transitions.py`).

Transitions to the next phase are straight arrows. Arcs above skip phases, arcs below go back. The tooltip of an arrow
shows the cause.
"""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Final

from tenure.model.nodeclaim.state import Phase
from tenure.policy.lifecycle.transitions import TRANSITIONS

FILE: Final = Path(__file__).parents[2] / "docs" / "life.svg"
_WIDE, _HIGH, _STEP = 112, 40, 144
_LINE: Final = 150
"""Y coordinate of the upper edge of the boxes."""
_RISE: Final = 22
"""Additional height of an arc for each phase that it skips."""
_PHASES: Final = tuple(Phase)
_STEPS: Final = {
    (Phase.LAUNCH, Phase.REGISTRATION): "launched",
    (Phase.REGISTRATION, Phase.INITIALIZATION): "Node joined",
    (Phase.INITIALIZATION, Phase.READY): "Ready",
    (Phase.READY, Phase.DRAIN): "deleted",
    (Phase.DRAIN, Phase.TERMINATION): "drained",
    (Phase.TERMINATION, Phase.DELETED): "terminated",
}
_COLOURS: Final = {
    Phase.READY: "#2e7d32",
    Phase.DRAIN: "#b26a00",
    Phase.TERMINATION: "#b26a00",
    Phase.DELETED: "#616161",
}
_DEFAULT_COLOUR: Final = "#3f51b5"


def text() -> str:
    width = _STEP * (len(_PHASES) - 1) + _WIDE + 16
    return "\n".join(
        (
            "<!-- Written by `python -m tools.generate` from tenure/policy/lifecycle/transitions.py: "
            "change that, not this file. -->",
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 280" '
            'font-family="sans-serif" font-size="12">',
            "<title>Lifecycle of a node: its phases and the transitions between them</title>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z" fill="#888"/></marker></defs>',
            *_draw_arrows(),
            *_draw_boxes(),
            "</svg>\n",
        )
    )


def _draw_boxes() -> Iterator[str]:
    for number, phase in enumerate(_PHASES):
        left, colour = 8 + number * _STEP, _COLOURS.get(phase, _DEFAULT_COLOUR)
        yield f'<rect x="{left}" y="{_LINE}" width="{_WIDE}" height="{_HIGH}" rx="6" fill="{colour}"/>'
        middle = left + _WIDE // 2
        position = f'x="{middle}" y="{_LINE + 25}" text-anchor="middle"'
        yield f'<text {position} fill="#fff" font-size="14">{phase.value}</text>'


def _draw_arrows() -> Iterator[str]:
    for before, following in TRANSITIONS.items():
        for after, cause in following.items():
            path = _arrow_path(_PHASES.index(before), _PHASES.index(after))
            title = f"<title>{before.value} to {after.value}: {escape(cause)}</title>"
            yield f'<path d="{path}" fill="none" stroke="#888" stroke-width="1.5" marker-end="url(#tip)">{title}</path>'
            if label := _STEPS.get((before, after)):
                at = 8 + _PHASES.index(before) * _STEP + _WIDE + (_STEP - _WIDE) // 2
                yield f'<text x="{at}" y="{_LINE + _HIGH + 18}" text-anchor="middle" fill="#888">{label}</text>'


def _arrow_path(before: int, after: int) -> str:
    left = 8 + before * _STEP
    if after == before + 1:
        middle = _LINE + _HIGH // 2
        return f"M{left + _WIDE},{middle} H{8 + after * _STEP - 1}"
    ahead = after > before
    start, end = left + _WIDE * (0.65 if ahead else 0.35), 8 + after * _STEP + _WIDE * (0.35 if ahead else 0.65)
    edge = _LINE if ahead else _LINE + _HIGH
    far = edge - _RISE * (after - before) - 14 if ahead else edge + _RISE * (before - after) + 40
    return f"M{start:.0f},{edge} C{start:.0f},{far} {end:.0f},{far} {end:.0f},{edge}"
