"""The picture of a node's life has every phase and every transition, with who causes it."""

from xml.etree import ElementTree

from deploy.picture import FILE
from model.lifecycle import Phase
from policy.lifecycle import TRANSITIONS

SVG = "{http://www.w3.org/2000/svg}"


def test_every_phase_and_every_transition_is_drawn() -> None:
    drawn = ElementTree.fromstring(FILE.read_text())
    words = {one.text for one in drawn.iter(f"{SVG}text")}
    assert {phase.value for phase in Phase} <= words
    said = [one.text for one in drawn.iter(f"{SVG}title")][1:]
    steps = [(before, after) for before, following in TRANSITIONS.items() for after in following]
    assert said == [f"{a.value} to {b.value}: {TRANSITIONS[a][b]}" for a, b in steps]
