"""The phase and the hash of a NodeClaim that another controller ran."""

from typing import Any

import pytest

from tenure.apis.hash import HASH_VERSION
from tenure.model.nodeclaim.state import Phase
from tenure.policy.lifecycle.adoption import decide_first_phase, decide_stamp, decide_taken_over
from tests.unit.policy.drift_builders import claim


@pytest.mark.parametrize(
    ("facts", "phase"),
    [
        ({"provider_id": "", "launched": False}, Phase.LAUNCH),
        ({}, Phase.REGISTRATION),
        ({"registered": True}, Phase.INITIALIZATION),
        ({"registered": True, "initialized": True}, Phase.READY),
        ({"registered": True, "initialized": True, "deleting": True}, Phase.DRAIN),
        ({"deleting": True}, Phase.TERMINATION),
    ],
)
def test_its_conditions_say_how_far_it_had_come(facts: dict[str, Any], phase: Phase) -> None:
    assert decide_first_phase(claim(**facts)) is phase


@pytest.mark.parametrize(
    ("expected", "phase", "in_hand"),
    [
        (Phase.READY, Phase.READY, True),
        (Phase.READY, Phase.LAUNCH, False),
        (Phase.READY, Phase.DRAIN, False),
        (Phase.REGISTRATION, Phase.READY, True),
        (Phase.DRAIN, Phase.TERMINATION, True),
        (Phase.DRAIN, Phase.READY, False),
    ],
)
def test_a_workflow_has_it_in_hand_where_it_should_begin_or_further_on(
    expected: Phase, phase: Phase, in_hand: bool
) -> None:
    assert decide_taken_over(expected, phase) is in_hand


KEYS = {"key": "hash", "version": "hash-version"}


@pytest.mark.parametrize(
    ("annotations", "drifted", "deleting", "written"),
    [
        ({"hash": "1", "hash-version": "v3"}, False, False, {"hash": "9", "hash-version": HASH_VERSION}),
        ({"hash": "1", "hash-version": "v3"}, True, False, {"hash-version": HASH_VERSION}),
        ({"hash": "1", "hash-version": "v3"}, False, True, {}),
        ({"hash": "1", "hash-version": HASH_VERSION}, False, False, {}),
        ({"hash": "1"}, False, False, {}),
        ({}, False, False, {}),
    ],
    ids=["of Karpenter", "drifted already", "going", "ours", "of no version", "never stamped"],
)
def test_what_is_written(annotations: dict[str, str], drifted: bool, deleting: bool, written: dict[str, str]) -> None:
    assert decide_stamp(annotations, "9", drifted=drifted, deleting=deleting, **KEYS) == written
