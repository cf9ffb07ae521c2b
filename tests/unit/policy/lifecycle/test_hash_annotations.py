"""Stamps of another version are rewritten so that no node drifts for it, and none that has drifted is forgiven."""

import pytest

from tenure.apis.hash import HASH_VERSION
from tenure.policy.lifecycle.adoption import decide_stamp

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
