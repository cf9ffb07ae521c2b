"""NodeClaims against running workflows, mended both ways."""

from datetime import datetime

from tenure.controller.resync import mend, retire
from tests.support.controller.builders import at, claim, pool
from tests.unit.controller.test_telling import ALL, Stage


def mended(stage: Stage, running: dict[str, datetime], seconds: float = 0) -> tuple[int, int]:
    return mend(running, stage.caches, stage.telling, stage.told, ALL, at(seconds))


def key(name: str) -> str:
    return f"prod/nodeclaim/{name}/{f'uid-{name}'[:8]}"


def test_what_runs_and_is_there_is_left_alone() -> None:
    stage = Stage()
    stage.hear("nodeclaims", claim("c1"))
    assert mended(stage, {key("c1"): at(-100)}) == (0, 0) and not stage.told.signals


def test_a_claim_without_a_life_gets_one_whatever_it_was_told() -> None:
    stage = Stage()
    stage.hear("nodeclaims", claim("c1"))
    stage.tell()
    assert mended(stage, {}) == (1, 0)
    assert len(stage.told.to(key("c1"))) == 2


def test_a_young_claim_may_only_be_late_to_be_seen() -> None:
    stage = Stage()
    stage.hear("nodeclaims", claim("c1", creationTimestamp="2026-01-01T11:59:30Z"))
    assert mended(stage, {}) == (0, 0)


def test_a_claim_that_lingers_after_its_life_gets_no_other() -> None:
    stage = Stage()
    stage.hear("nodeclaims", claim("over", deleting=True, finalizers=["example.com/mine"]))
    stage.hear("nodeclaims", claim("going", deleting=True))
    assert mended(stage, {}) == (1, 0) and stage.told.to(key("going"))


def test_a_life_without_a_claim_is_told_so() -> None:
    stage = Stage()
    assert mended(stage, {key("lost"): at(-100), key("young"): at(-10)}) == (0, 1)
    assert stage.told.to(key("lost"))[0].exists is False


def test_what_was_told_to_nobody_any_more_is_forgotten() -> None:
    stage = Stage({key("old"): "x", "prod/nodepool/general": "y"})
    mended(stage, {})
    assert stage.told.sent == {"prod/nodepool/general": "y"}


def test_coordinators_whose_objects_went_while_nobody_watched_are_told() -> None:
    stage = Stage()
    stage.hear("nodepools", pool("general"))
    running = ["prod/nodepool/general", "prod/nodepool/lost", "prod/nodeclass/lost"]
    assert retire(running, "prod", stage.caches, stage.telling) == 2
    for key_of_lost in running[1:]:
        (seen,) = stage.told.to(key_of_lost)
        assert seen.exists is False
    assert not stage.told.to("prod/nodepool/general")
