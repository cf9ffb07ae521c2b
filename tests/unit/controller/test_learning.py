"""What a live Node teaches, and what of it the Provisioning workflow is told."""

from typing import Any

import pytest

from tenure.apis.labels import ARCH, INSTANCE_GPU_COUNT, INSTANCE_TYPE, REGISTERED
from tenure.controller.planning.discovered_capacity import Learning
from tenure.model.discovered_capacity import Learnt
from tests.support.controller.builders import Json, World, claim, node, node_class

MIB = 1 << 20
STANDARD, NVIDIA = "ami-standard", "ami-nvidia"


def machine(
    name: str, memory: str = "7650Mi", image: str = STANDARD, of: str = "m6i.large", **labels: str | None
) -> tuple[Json, Json]:
    """A NodeClaim and its registered Node; a label that is None is left out."""
    marks = {INSTANCE_TYPE: of, REGISTERED: "true", ARCH: "amd64"} | labels
    one = claim(name, phase="Registered", labels={"karpenter.sh/nodepool": "general", INSTANCE_TYPE: of})
    one["status"]["imageID"] = image
    other = node(f"n-{name}", of=name, labels={key: value for key, value in marks.items() if value is not None})
    other["status"]["capacity"] = {"memory": memory}
    return one, other


def resolved(*amis: tuple[str, str, str]) -> Json:
    """A class with images: id, architecture, operator on the number of GPUs."""
    raw = node_class()
    raw["status"] = {
        "amis": [
            {
                "id": image,
                "requirements": [
                    {"key": ARCH, "operator": "In", "values": [architecture]},
                    {"key": INSTANCE_GPU_COUNT, "operator": gpus},
                ],
            }
            for image, architecture, gpus in amis
        ]
    }
    return raw


FOUR = (
    (NVIDIA, "amd64", "Exists"),
    ("ami-nvidia-arm", "arm64", "Exists"),
    (STANDARD, "amd64", "DoesNotExist"),
    ("ami-standard-arm", "arm64", "DoesNotExist"),
)


@pytest.fixture
def world() -> World:
    world = World()
    world.hear("ec2nodeclasses", resolved(*FOUR))
    return world


def learn(world: World, *machines: tuple[Json, Json], by: Learning | None = None) -> Learning:
    learning = by or Learning(world.caches)
    for one, other in machines:
        world.hear("nodeclaims", one)
        world.hear("nodes", other)
        learning.look_at(world.caches.take_changes())
    return learning


def test_memory_is_learnt_under_the_image_that_the_instance_runs(world: World) -> None:
    learning = learn(world, machine("a"))
    assert learning.learnt.images == {STANDARD: {"m6i.large": 7650 * MIB}}


def test_the_smallest_of_a_kind_counts_and_a_larger_one_changes_nothing(world: World) -> None:
    learning = learn(world, machine("a", "7650Mi"), machine("b", "7640Mi"))
    assert learning.learnt.memory(STANDARD, "m6i.large") == 7640 * MIB
    digest = learning.digest()
    learn(world, machine("c", "7700Mi"), by=learning)
    assert learning.learnt.memory(STANDARD, "m6i.large") == 7640 * MIB and learning.digest() == digest


def test_nodes_that_are_seen_together_teach_the_smallest(world: World) -> None:
    for one, other in (machine("a", "7640Mi"), machine("b", "7650Mi"), machine("c", "7630Mi")):
        world.hear("nodeclaims", one)
        world.hear("nodes", other)
    learning = Learning(world.caches)
    learning.look_at(world.caches.snapshot())
    assert learning.learnt.images == {STANDARD: {"m6i.large": 7630 * MIB}}


def test_what_was_learnt_outlives_the_node(world: World) -> None:
    one, other = machine("a")
    learning = learn(world, (one, other))
    world.lose("nodes", other)
    world.lose("nodeclaims", one)
    learning.look_at(world.caches.take_changes())
    assert learning.learnt.memory(STANDARD, "m6i.large") == 7650 * MIB


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({INSTANCE_TYPE: "m6i.xlarge"}, "it says to be of another type than was launched"),
        ({INSTANCE_GPU_COUNT: "1"}, "its labels call for the NVIDIA image"),
        ({ARCH: "arm64"}, "its labels call for an arm64 image"),
    ],
)
def test_a_node_that_is_not_what_it_says_teaches_nothing(world: World, change: dict[str, Any], why: str) -> None:
    assert not learn(world, machine("a", **change)).learnt.images, why


def test_a_node_teaches_before_it_is_registered_by_the_labels_that_it_will_have(world: World) -> None:
    """A plan in between knows its real room, and would buy its like again."""
    unknown: dict[str, Any] = {REGISTERED: None, INSTANCE_TYPE: None, ARCH: None}
    coming = machine("a", **unknown)
    coming[0]["metadata"]["labels"] |= {ARCH: "amd64"}
    assert learn(world, coming).learnt.images == {STANDARD: {"m6i.large": 7650 * MIB}}


def test_of_two_nodes_of_one_instance_neither_teaches(world: World) -> None:
    one, other = machine("a")
    world.hear("nodes", machine("a")[1] | {"metadata": other["metadata"] | {"name": "stranger", "uid": "uid-2"}})
    assert not learn(world, (one, other)).learnt.images


def test_a_node_without_memory_or_image_teaches_nothing(world: World) -> None:
    assert not learn(world, machine("a", "0"), machine("b", image="")).learnt.images


def test_a_node_of_an_image_that_its_class_let_go_still_teaches(world: World) -> None:
    assert learn(world, machine("a", image="ami-before")).learnt.memory("ami-before", "m6i.large") == 7650 * MIB


def test_a_claim_that_is_told_of_after_its_node_teaches_too(world: World) -> None:
    one, other = machine("a")
    world.hear("nodes", other)
    learning = Learning(world.caches)
    learning.look_at(world.caches.take_changes())
    world.hear("nodeclaims", one)
    learning.look_at(world.caches.take_changes())
    assert learning.learnt.count == 1


def test_the_workflow_is_told_what_it_does_not_know(world: World) -> None:
    learning = learn(world, machine("a", "7650Mi"), machine("b", of="m6i.xlarge"))
    assert learning.seen().learnt == learning.learnt
    assert learning.seen().images == tuple(sorted(image for image, _, _ in FOUR))
    learning.heed(Learnt(images={STANDARD: {"m6i.large": 7650 * MIB}, "ami-gone": {"t3.nano": 1}}))
    assert learning.seen().learnt.images == {STANDARD: {"m6i.xlarge": 7650 * MIB}}
    assert learning.learnt.memory("ami-gone", "t3.nano") == 1


def test_what_the_workflow_let_go_is_let_go_here_unless_somebody_uses_or_runs_it(world: World) -> None:
    learning = learn(world, machine("a"), machine("b", image="ami-before"))
    learning.heed(Learnt(images={"ami-gone": {"t3.nano": 1}, "ami-gone/123": {"t3.nano": 1}}))
    assert learning.learnt.images.keys() == {STANDARD, "ami-before", "ami-gone", "ami-gone/123"}
    world.lose("nodeclaims", *(machine(name)[0] for name in "ab"))
    learning.heed(Learnt())
    assert learning.learnt.images.keys() == {STANDARD}


def test_the_digest_is_of_everything_and_of_the_images_in_use(world: World) -> None:
    digests = {Learning(world.caches).digest()}
    learning = learn(world, machine("a"))
    digests.add(learning.digest())
    world.hear("ec2nodeclasses", resolved(*FOUR[:2]))
    digests.add(learning.digest())
    assert len(digests) == 3
    assert learn(World(), machine("a")).digest() != learning.digest()
