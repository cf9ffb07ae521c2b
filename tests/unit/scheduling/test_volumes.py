"""Node requirements of volumes, and volumes that make a pod unschedulable."""

from typing import Any

import pytest

from tenure.apis.labels import HOSTNAME, ZONE
from tenure.model.facts import PodFact, StorageFact
from tenure.model.requirements import Requirements
from tenure.scheduling.nodepool_template import RejectionReason
from tenure.scheduling.snapshot import Storage
from tenure.scheduling.volumes import VolumeRequirements, merge_alternatives, volume_attachments, volume_requirements
from tests.unit.scheduling.builders import EBS, change, expressions, pod, pvc, storage_class, volume


def storage(*facts: StorageFact) -> Storage:
    known = Storage()
    for fact in facts:
        fact_change = change(fact)
        known.set_fact(fact_change.kind, fact_change.key, fact_change.fact)  # type: ignore[arg-type]
    return known


def pod_with_claims(*claims: str, **more: Any) -> PodFact:
    return pod("web", volumes=claims, **more)


def requirements_of(*facts: StorageFact, claims: tuple[str, ...] = ("data",)) -> VolumeRequirements:
    found = volume_requirements(pod_with_claims(*claims), storage(*facts))
    assert isinstance(found, VolumeRequirements), found
    return found


def format_alternatives(found: VolumeRequirements) -> list[str]:
    return [str(one) for one in found.alternatives]


# --- rejections ---


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ([], "PersistentVolumeClaim default/data does not exist; create it"),
        (
            [pvc("data", volume="v", deleting=True), volume("v")],
            "default/data is being deleted; recreate it once it is gone",
        ),
        ([pvc("data", volume="v", lost=True)], "default/data is Lost: its PersistentVolume v is gone; restore"),
        ([pvc("data", volume="v")], "names PersistentVolume v, which does not exist; restore it"),
        ([pvc("data", volume="v"), volume("v", deleting=True)], "PersistentVolume v, which is being deleted"),
        (
            [pvc("data", volume="v", bound=False), volume("v")],
            "not bound to it: the annotation pv.kubernetes.io/bind-completed is missing",
        ),
        ([pvc("data")], "default/data is not bound and names no StorageClass; set spec.storageClassName"),
        ([pvc("data", of="gp3")], "names StorageClass gp3, which does not exist; create it"),
        (
            [pvc("data", of="gp3"), storage_class("gp3", waits=False)],
            "not bound yet, and StorageClass gp3 binds Immediate, before there is a node; find out why ebs.csi.aws.com",
        ),
        (
            [pvc("data", of="auto"), storage_class("auto", "eks.amazonaws.com/compute-type In auto")],
            "StorageClass auto allows topologies by the label eks.amazonaws.com/compute-type",
        ),
        (
            [pvc("data", of="auto"), storage_class("auto", driver="ebs.csi.eks.amazonaws.com")],
            "its volume is of the provisioner ebs.csi.eks.amazonaws.com",
        ),
        (
            [pvc("data", volume="v"), volume("v", driver="ebs.csi.eks.amazonaws.com")],
            "its volume is of the provisioner ebs.csi.eks.amazonaws.com",
        ),
        ([pvc("data", volume="v"), volume("v", ())], "node affinity has no expressions, which no node satisfies"),
        ([pvc("data", volume="v"), volume("v", "n Gt x")], "default/data: the topology of its volume is invalid: n Gt"),
    ],
)
def test_unusable_volume_rejects_the_pod_with_advice(facts: list[StorageFact], message: str) -> None:
    found = volume_requirements(pod_with_claims("data"), storage(*facts))
    assert isinstance(found, RejectionReason) and message in found


def test_one_unusable_volume_rejects_the_pod() -> None:
    found = volume_requirements(pod_with_claims("good", "bad"), storage(pvc("good", volume="v"), volume("v")))
    assert isinstance(found, RejectionReason) and "default/bad" in found


def test_claim_of_another_namespace_does_not_count() -> None:
    found = volume_requirements(
        pod_with_claims("data", namespace="other"), storage(pvc("data", volume="v"), volume("v"))
    )
    assert found == "PersistentVolumeClaim other/data does not exist; create it"


def test_volumes_in_different_zones_are_named() -> None:
    facts = storage(
        pvc("one", volume="v"), pvc("two", volume="w"), volume("v", f"{ZONE} In a"), volume("w", f"{ZONE} In b")
    )
    found = volume_requirements(pod_with_claims("one", "two"), facts)
    assert isinstance(found, RejectionReason)
    assert "PersistentVolumeClaim default/two needs a node with topology.kubernetes.io/zone In [b]" in found
    assert "the others need topology.kubernetes.io/zone In [a]" in found


# --- topology ---


def test_pod_without_claims_or_with_unrestricted_volume_has_no_requirements() -> None:
    assert volume_requirements(pod(), storage()) == VolumeRequirements()
    assert format_alternatives(requirements_of(pvc("data", volume="v"), volume("v"))) == []


def test_bound_volume_requires_its_node_affinity_not_that_of_its_class() -> None:
    facts = (pvc("data", volume="v", of="gp3"), volume("v", f"{ZONE} In a"), storage_class("gp3", f"{ZONE} In b"))
    assert format_alternatives(requirements_of(*facts)) == ["topology.kubernetes.io/zone In [a]"]


def test_unbound_volume_requires_the_topologies_of_its_class() -> None:
    ebs_zone = "topology.ebs.csi.aws.com/zone In a b"
    assert format_alternatives(requirements_of(pvc("data", of="gp3"), storage_class("gp3", ebs_zone))) == [
        "topology.kubernetes.io/zone In [a b]"
    ]
    assert format_alternatives(requirements_of(pvc("data", of="gp3"), storage_class("gp3"))) == []


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        (True, ["topology.kubernetes.io/zone In [a]"]),
        (False, ["kubernetes.io/hostname In [n1], topology.kubernetes.io/zone In [a]"]),
    ],
)
def test_hostname_of_a_local_volume_is_dropped(local: bool, expected: list[str]) -> None:
    here = expressions(f"{HOSTNAME} In n1", f"{ZONE} In a")
    assert format_alternatives(requirements_of(pvc("data", volume="v"), volume("v", here, local=local))) == expected


def test_local_volume_with_hostname_only_has_no_requirements() -> None:
    assert (
        format_alternatives(requirements_of(pvc("data", volume="v"), volume("v", f"{HOSTNAME} In n1", local=True)))
        == []
    )


def test_compatible_alternatives_of_several_volumes_are_combined() -> None:
    ab = volume("v", expressions(f"{ZONE} In a", "disk In x"), expressions(f"{ZONE} In b", "disk In y"))
    bc = volume("w", f"{ZONE} In b", f"{ZONE} In c")
    found = requirements_of(pvc("one", volume="v"), pvc("two", volume="w"), ab, bc, claims=("one", "two"))
    assert format_alternatives(found) == ["disk In [y], topology.kubernetes.io/zone In [b]"]


def test_alternatives_with_different_labels_are_kept() -> None:
    two = volume("v", expressions(f"{ZONE} In a", "disk In x"), expressions(f"{ZONE} In b", "disk In y"))
    assert len(format_alternatives(requirements_of(pvc("data", volume="v"), two))) == 2


@pytest.mark.parametrize(
    ("alternatives", "merged"),
    [
        (["z In a", "z In b", "z In c"], ["z In [a b c]"]),
        (["z In a", "z In a"], ["z In [a]"]),
        (["z In a", "y In a"], ["z In [a]", "y In [a]"]),
        (["z In a", "z NotIn b"], ["z In [a]", "z NotIn [b]"]),
        (["z In a", "z DoesNotExist"], ["z In [a]", "z DoesNotExist"]),
        (["z In a,y In 1", "z In b,y In 2"], ["y In [1], z In [a]", "y In [2], z In [b]"]),
        (["z In a,y In 1", "z In b,y In 1", "z In a,y In 2", "z In b,y In 2"], ["y In [1 2], z In [a b]"]),
    ],
)
def test_alternatives_that_differ_in_one_label_are_merged(alternatives: list[str], merged: list[str]) -> None:
    assert [
        str(one)
        for one in merge_alternatives(
            Requirements.from_expressions(expressions(*text.split(","))) for text in alternatives
        )
    ] == merged


# --- attachments ---


def test_attachment_driver_is_that_of_volume_or_class_and_claims_count_once() -> None:
    facts = storage(
        pvc("bound", volume="v", of="nfs"),
        volume("v"),
        pvc("waiting", of="nfs"),
        storage_class("nfs", driver="nfs.csi"),
        pvc("plain", volume="p"),
        volume("p", driver=""),
    )
    one = pod_with_claims("bound", "waiting", "plain", "unknown", "bound")
    assert volume_attachments(one, facts) == {(EBS, "default/bound"), ("nfs.csi", "default/waiting")}
