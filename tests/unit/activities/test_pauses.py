"""A pause on its object: the annotation, and the event."""

from typing import Any

import pytest

from activities.nodeclaim.annotations import PauseActivities
from tenure.apis.labels import PAUSE
from tenure.model.operator_requests import MirrorAsked
from tests.support.fakes.kubernetes import FakeNamespaces
from tests.unit.activities.builders import Scene, performed

TEXT = "until=2026-06-01T18:00:00Z, by=ann, reason=why"
SAID: dict[str, Any] = {"event": "DisruptionPaused", "message": "is paused"}


class Mirrors:
    def __init__(self, scene: Scene) -> None:
        self.namespaces = FakeNamespaces()
        self.activities = PauseActivities(
            claims=scene.claims,
            nodes=scene.nodes,
            pools=scene.pools,
            namespaces=self.namespaces,
            events=scene.events,
            namespace="tenure",
        )

    async def mirror(self, **asked: Any) -> None:
        await performed(self.activities.mirror_pause, MirrorAsked.model_validate(asked))


@pytest.fixture
def mirrors(scene: Scene) -> Mirrors:
    return Mirrors(scene)


def on_claim(scene: Scene) -> str | None:
    found: str | None = scene.claims.found["a"]["metadata"]["annotations"].get(PAUSE)
    return found


async def test_a_pause_of_the_cluster_stands_on_the_workers_namespace(scene: Scene, mirrors: Mirrors) -> None:
    await mirrors.mirror(kind="Cluster", text=TEXT, **SAID)
    assert mirrors.namespaces.found == {"tenure": {PAUSE: TEXT}}
    assert scene.events.said == [("tenure", "DisruptionPaused", "is paused")]
    await mirrors.mirror(kind="Cluster")
    assert mirrors.namespaces.found == {"tenure": {}}


async def test_that_of_a_node_is_on_its_claim_and_goes_from_both(scene: Scene, mirrors: Mirrors) -> None:
    scene.running(annotations={PAUSE: "another"})
    asked = {"kind": "NodeClaim", "name": "a", "uid": "uid-a", "node_name": "node-a"}
    await mirrors.mirror(**asked, text=TEXT)
    assert on_claim(scene) == TEXT and scene.nodes.found["node-a"].annotations == {}
    await scene.nodes.annotate("node-a", {PAUSE: TEXT})
    await mirrors.mirror(**asked)
    assert on_claim(scene) is None and scene.nodes.found["node-a"].annotations == {}


async def test_one_that_is_over_is_taken_off_only_as_it_is_known(scene: Scene, mirrors: Mirrors) -> None:
    scene.running()
    await scene.claims.annotate("a", {PAUSE: "prolonged"})
    asked = {"kind": "NodeClaim", "name": "a", "uid": "uid-a"}
    await mirrors.mirror(**asked, only=TEXT)
    assert on_claim(scene) == "prolonged"
    await mirrors.mirror(**asked, only="prolonged")
    assert on_claim(scene) is None


async def test_what_a_person_wrote_is_told_of_and_left_as_it_is(scene: Scene, mirrors: Mirrors) -> None:
    scene.pools.add("gpu")
    await scene.pools.annotate("gpu", {PAUSE: "until tomorrow"})
    await mirrors.mirror(kind="NodePool", name="gpu", write=False, **SAID)
    assert scene.pools.found["gpu"].metadata.annotations == {PAUSE: "until tomorrow"}
    assert scene.events.reasons("gpu") == ["DisruptionPaused"]


async def test_a_claim_of_another_uid_and_one_that_is_gone_are_left_alone(scene: Scene, mirrors: Mirrors) -> None:
    scene.running()
    await mirrors.mirror(kind="NodeClaim", name="a", uid="an earlier one", text=TEXT, **SAID)
    await mirrors.mirror(kind="NodeClaim", name="gone", uid="uid-gone", text=TEXT, **SAID)
    assert on_claim(scene) is None and scene.events.said == []
