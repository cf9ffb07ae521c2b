"""Conversion of storage objects to facts."""

from typing import Any

import pytest

from tenure.kube.facts.volumes import csi_node_fact, storage_class_fact, volume_claim_fact, volume_fact
from tenure.model.facts import CSINodeFact, Expression, VolumeClaimFact

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


def claim(annotations: dict[str, str] | None = None, phase: str = "Pending", **spec: Any) -> Json:
    metadata = {"name": "data", "namespace": "shop", "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"accessModes": ["ReadWriteOnce"], **spec}, "status": {"phase": phase}}


def volume(*terms: Json, labels: dict[str, str] | None = None, **source: Any) -> Json:
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    return {"metadata": {"name": "pv", "labels": labels or {}}, "spec": {"capacity": {}, **affinity, **source}}


def term(*expressions: tuple[str, str, list[str]]) -> Json:
    return {"matchExpressions": [{"key": key, "operator": how, "values": values} for key, how, values in expressions]}


def is_in(key: str, *values: str) -> Expression:
    return Expression(key=key, operator="In", values=values)


def test_volume_claim_is_bound_if_its_annotation_says_so() -> None:
    waiting = VolumeClaimFact(namespace="shop", name="data", storage_class="gp3")
    assert volume_claim_fact(claim(storageClassName="gp3")) == waiting and waiting.key == "shop/data"
    named = volume_claim_fact(claim(volumeName="pv", storageClassName=""))
    assert (named.volume, named.bound, named.storage_class) == ("pv", False, "")
    assert volume_claim_fact(claim({"pv.kubernetes.io/bind-completed": "yes"}, volumeName="pv")).bound


def test_beta_annotation_precedes_the_storage_class_of_the_spec() -> None:
    annotated = claim({"volume.beta.kubernetes.io/storage-class": "io2"}, storageClassName="gp3")
    assert volume_claim_fact(annotated).storage_class == "io2"


def test_lost_and_terminating_volume_claims_are_recognized() -> None:
    assert volume_claim_fact(claim(phase="Lost")).lost and not volume_claim_fact(claim(phase="Bound")).lost
    terminating = claim()
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert volume_claim_fact(terminating).deleting


def test_volume_terms_come_from_its_node_affinity() -> None:
    found = volume_fact(volume(term((ZONE, "In", ["a"])), term((ZONE, "In", ["b"])), csi={"driver": "ebs.csi.aws.com"}))
    assert found.terms == ((is_in(ZONE, "a"),), (is_in(ZONE, "b"),))
    assert (found.driver, found.local) == ("ebs.csi.aws.com", False)
    assert volume_fact(volume(nfs={})).terms is None


def test_volume_without_its_claim_is_released() -> None:
    phases = ("Available", "Bound", "Released", "Failed")
    found = [phase for phase in phases if volume_fact({**volume(nfs={}), "status": {"phase": phase}}).released]
    assert found == ["Released"] and not volume_fact(volume(nfs={})).released


def test_zone_labels_of_older_volumes_become_terms() -> None:
    assert volume_fact(volume(labels={ZONE: "a__b", "team": "x"})).terms == ((is_in(ZONE, "a", "b"),),)
    both = volume_fact(volume(term(("disk", "Exists", [])), labels={ZONE: "a"})).terms
    assert both == ((Expression(key="disk", operator="Exists"), is_in(ZONE, "a")),)


def test_volume_with_match_fields_fits_no_node() -> None:
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    assert volume_fact(volume(by_name, csi={"driver": "x"})).terms == ()


@pytest.mark.parametrize(
    ("source", "driver", "local"),
    [
        ("awsElasticBlockStore", "ebs.csi.aws.com", False),
        ("gcePersistentDisk", "pd.csi.storage.gke.io", False),
        ("azureDisk", "disk.csi.azure.com", False),
        ("azureFile", "file.csi.azure.com", False),
        ("cinder", "cinder.csi.openstack.org", False),
        ("vsphereVolume", "csi.vsphere.vmware.com", False),
        ("portworxVolume", "pxd.portworx.com", False),
        ("nfs", "", False),
        ("local", "", True),
        ("hostPath", "", True),
    ],
)
def test_in_tree_volumes_have_their_csi_driver(source: str, driver: str, local: bool) -> None:
    found = volume_fact(volume(**{source: {}}))
    assert (found.driver, found.local) == (driver, local)


def test_storage_class_is_read_with_binding_mode_and_topologies() -> None:
    raw: Json = {"metadata": {"name": "gp2"}, "provisioner": "kubernetes.io/aws-ebs"}
    found = storage_class_fact(raw)
    assert (found.driver, found.waits, found.topologies, found.default) == ("ebs.csi.aws.com", False, (), False)
    raw["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    raw |= {
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}],
    }
    found = storage_class_fact(raw)
    assert found.waits and found.default and found.topologies == ((is_in(ZONE, "a", "b"),),)


def test_csi_node_limits_are_read_per_driver() -> None:
    drivers = [
        {"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": 25}},
        {"name": "none.csi", "nodeID": "n", "allocatable": {"count": 0}},
        {"name": "efs.csi.aws.com", "nodeID": "i-1"},
        {"name": "odd.csi", "nodeID": "n", "allocatable": {}},
    ]
    raw = {"metadata": {"name": "n"}, "spec": {"drivers": drivers}}
    limits, unlimited = {"ebs.csi.aws.com": 25, "none.csi": 0}, frozenset({"efs.csi.aws.com", "odd.csi"})
    assert csi_node_fact(raw) == CSINodeFact(name="n", limits=limits, unlimited_drivers=unlimited)
    assert csi_node_fact({"metadata": {"name": "n"}, "spec": {"drivers": None}}).limits == {}
