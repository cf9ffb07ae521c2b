"""Entries of invalid objects, which a tenant may create by the thousand."""

import time

from tenure.model.errors import InvalidObject
from tenure.model.invalid_objects import InvalidObjects, ObjectKey
from tests.support.containers import count_entries

PODS = [ObjectKey("Pod", f"web/p{number}", f"uid-{number}") for number in range(5000)]


def test_deletion_takes_little_time_with_many_entries() -> None:
    invalid = InvalidObjects()
    for key in PODS:
        invalid.record(key, ValueError("bad"))
    began = time.process_time()
    for key in PODS:
        invalid.forget_object("Pod", key.uid, key.name)
    assert not invalid.items() and time.process_time() - began < 1


def test_removed_entries_leave_nothing() -> None:
    invalid = InvalidObjects()
    before = count_entries(invalid)
    by_uid, by_name, ended, fixed, planned = PODS[:5]
    for key in (by_uid, by_name, ended._replace(step="drift"), fixed):
        invalid.record(key, ValueError("bad"))
    invalid.replace_steps(
        "plan", {planned._replace(step="plan"): InvalidObject(kind="", name="", reason="", message="")}
    )
    assert len(invalid.items()) == 5
    invalid.forget_object("Pod", by_uid.uid, "")
    invalid.forget_object("Pod", "", by_name.name)
    invalid.retain("drift", ())
    with invalid.guard(fixed):
        """It is valid now."""
    invalid.replace_steps("plan", {})
    assert count_entries(invalid) == before
