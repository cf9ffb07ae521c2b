"""NodeClaims against running workflows, mended both ways."""

from datetime import datetime

from tenure.controller.resync import notify_orphaned_coordinators, repair_nodeclaim_workflows
from tests.support.controller.builders import at, claim, pool
from tests.unit.controller.signals.test_workflow_notifier import ALL_SYNCED, NotifierHarness


def repair(harness: NotifierHarness, running: dict[str, datetime], seconds: float = 0) -> tuple[int, int]:
    return repair_nodeclaim_workflows(
        running, harness.cache, harness.notifier, harness.signal_queue, ALL_SYNCED, at(seconds)
    )


def workflow_key(name: str) -> str:
    return f"prod/nodeclaim/{name}/{f'uid-{name}'[:8]}"


def test_what_runs_and_is_there_is_left_alone() -> None:
    harness = NotifierHarness()
    harness.apply_objects("nodeclaims", claim("c1"))
    assert repair(harness, {workflow_key("c1"): at(-100)}) == (0, 0) and not harness.signal_queue.signals


def test_a_claim_without_a_life_gets_one_whatever_it_was_told() -> None:
    harness = NotifierHarness()
    harness.apply_objects("nodeclaims", claim("c1"))
    harness.notify()
    assert repair(harness, {}) == (1, 0)
    assert len(harness.signal_queue.arguments_to(workflow_key("c1"))) == 2


def test_a_young_claim_may_only_be_late_to_be_seen() -> None:
    harness = NotifierHarness()
    harness.apply_objects("nodeclaims", claim("c1", creationTimestamp="2026-01-01T11:59:30Z"))
    assert repair(harness, {}) == (0, 0)


def test_a_claim_that_lingers_after_its_life_gets_no_other() -> None:
    harness = NotifierHarness()
    harness.apply_objects("nodeclaims", claim("over", deleting=True, finalizers=["example.com/mine"]))
    harness.apply_objects("nodeclaims", claim("going", deleting=True))
    assert repair(harness, {}) == (1, 0) and harness.signal_queue.arguments_to(workflow_key("going"))


def test_a_life_without_a_claim_is_told_so() -> None:
    harness = NotifierHarness()
    assert repair(harness, {workflow_key("lost"): at(-100), workflow_key("young"): at(-10)}) == (0, 1)
    assert harness.signal_queue.arguments_to(workflow_key("lost"))[0].exists is False


def test_what_was_told_to_nobody_any_more_is_forgotten() -> None:
    harness = NotifierHarness({workflow_key("old"): "x", "prod/nodepool/general": "y"})
    repair(harness, {})
    assert harness.signal_queue.sent == {"prod/nodepool/general": "y"}


def test_coordinators_whose_objects_went_while_nobody_watched_are_told() -> None:
    harness = NotifierHarness()
    harness.apply_objects("nodepools", pool("general"))
    running = ["prod/nodepool/general", "prod/nodepool/lost", "prod/nodeclass/lost"]
    assert notify_orphaned_coordinators(running, "prod", harness.cache, harness.notifier) == 2
    for key_of_lost in running[1:]:
        (observed,) = harness.signal_queue.arguments_to(key_of_lost)
        assert observed.exists is False
    assert not harness.signal_queue.arguments_to("prod/nodepool/general")
