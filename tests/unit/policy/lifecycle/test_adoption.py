"""The first phase and the hash of a NodeClaim adopted from another controller."""

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
def test_first_phase_follows_the_conditions(facts: dict[str, Any], phase: Phase) -> None:
    assert decide_first_phase(claim(**facts)) is phase


@pytest.mark.parametrize(
    ("expected", "phase", "is_taken_over"),
    [
        (Phase.READY, Phase.READY, True),
        (Phase.READY, Phase.LAUNCH, False),
        (Phase.READY, Phase.DRAIN, False),
        (Phase.REGISTRATION, Phase.READY, True),
        (Phase.DRAIN, Phase.TERMINATION, True),
        (Phase.DRAIN, Phase.READY, False),
    ],
)
def test_nodeclaim_is_taken_over_in_its_expected_or_a_later_phase(
    expected: Phase, phase: Phase, is_taken_over: bool
) -> None:
    assert decide_taken_over(expected, phase) is is_taken_over


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
    ids=["by Karpenter", "already drifted", "deleting", "current version", "no version", "no hash"],
)
def test_hash_annotations_written_on_adoption(
    annotations: dict[str, str], drifted: bool, deleting: bool, written: dict[str, str]
) -> None:
    assert decide_stamp(annotations, "9", drifted=drifted, deleting=deleting, **KEYS) == written
