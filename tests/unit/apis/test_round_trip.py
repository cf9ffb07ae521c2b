"""Objects are read and written unchanged, including unknown fields, also through the JSON of a workflow's history."""

import pydantic_core
import pytest
from pydantic import BaseModel, ValidationError

from tenure.apis.capacitybuffer import CapacityBuffer
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.meta import KubeObject, Requirement, Taint
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodeoverlay import NodeOverlay
from tenure.apis.nodepool import NodePool
from tests.support.apis.crd_rows import CAPACITYBUFFER, NODECLAIM, NODECLASS, NODEOVERLAY, NODEPOOL, Object

METADATA = {
    "name": "a",
    "uid": "u",
    "generation": 3,
    "resourceVersion": "17",
    "creationTimestamp": "2025-01-01T00:00:00Z",
    "deletionTimestamp": "2025-01-02T00:00:00Z",
    "labels": {"karpenter.sh/nodepool": "default"},
    "finalizers": ["karpenter.sh/termination"],
    "ownerReferences": [
        {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": "u", "blockOwnerDeletion": True}
    ],
    "managedFields": [{"manager": "x", "time": "2025-01-01T00:00:00Z", "fieldsV1": {"f:metadata": {}}}],
}
UNKNOWN = {"futureField": {"deep": [1, None, {"x": "y"}]}, "empty": {}, "none": None}
BASES = (
    (NodePool, NODEPOOL),
    (NodeClaim, NODECLAIM),
    (EC2NodeClass, NODECLASS),
    (NodeOverlay, NODEOVERLAY),
    (CapacityBuffer, CAPACITYBUFFER),
)
OLDER: Object = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "old"},
    "spec": {
        "template": {"spec": {"requirements": [{"key": "a", "operator": "Unheard", "values": []}], "resources": {}}},
        "limits": {"cpu": 100, "memory": "1Gi"},
        "disruption": {"consolidationPolicy": "WhenUnderutilized", "expireAfter": "720h"},
    },
}


class Payload(BaseModel):
    """Objects as part of a workflow payload."""

    claim: NodeClaim
    pools: tuple[NodePool, ...]


@pytest.mark.parametrize(("model", "base"), BASES, ids=lambda one: getattr(one, "__name__", ""))
def test_object_is_written_as_it_was_read(model: type[KubeObject], base: Object) -> None:
    found = base | {"metadata": METADATA, "status": UNKNOWN, "spec": base["spec"] | UNKNOWN}
    assert model.from_object(found).to_object() == found


@pytest.mark.parametrize(("model", "base"), BASES, ids=lambda one: getattr(one, "__name__", ""))
def test_minimal_object_gains_no_fields(model: type[KubeObject], base: Object) -> None:
    assert model.from_object(base).to_object() == base


def test_object_stored_by_an_older_version_is_read() -> None:
    pool = NodePool.from_object(OLDER)
    assert pool.spec.template.spec.requirements[0].operator == "Unheard"
    assert pool.spec.limits == {"cpu": 100, "memory": "1Gi"}
    assert pool.to_object() == OLDER


def test_payload_keeps_fields_unset() -> None:
    payload = Payload(claim=NodeClaim.from_object(NODECLAIM), pools=(NodePool.from_object(OLDER),))
    parsed = Payload.model_validate_json(pydantic_core.to_json(payload))
    assert parsed == payload
    assert parsed.claim.to_object() == NODECLAIM
    assert parsed.pools[0].to_object() == OLDER


def test_constructed_object_is_written_in_camel_case() -> None:
    claim = NodeClaim.from_object({"metadata": {"name": "a"}}).model_copy(
        update={"spec": NodeClaim().spec.model_copy(update={"expire_after": "Never"})}
    )
    assert claim.to_object() == {"metadata": {"name": "a"}, "spec": {"expireAfter": "Never"}}
    assert Requirement(key="a", operator="In", values=("x",), min_values=1).to_object() == {
        "key": "a",
        "operator": "In",
        "values": ["x"],
        "minValues": 1,
    }


def test_spec_field_names_keep_acronyms() -> None:
    spec = {
        "associatePublicIPAddress": True,
        "metadataOptions": {"httpProtocolIPv6": "enabled"},
        "capacityReservationSelectorTerms": [{"ownerID": "1"}],
        "blockDeviceMappings": [{"ebs": {"kmsKeyID": "k", "snapshotID": "s"}}],
    }
    nodeclass = EC2NodeClass.from_object({"spec": spec})
    assert nodeclass.spec.associate_public_ip_address is True
    assert nodeclass.spec.metadata_options.http_protocol_ipv6 == "enabled"
    assert nodeclass.spec.capacity_reservation_selector_terms[0].owner_id == "1"
    assert nodeclass.spec.block_device_mappings[0].ebs is not None
    assert nodeclass.spec.block_device_mappings[0].ebs.kms_key_id == "k"
    assert nodeclass.to_object() == {"spec": spec}


def test_status_field_names_keep_acronyms() -> None:
    claim = NodeClaim.from_object({"status": {"providerID": "aws:///a/i-1", "imageID": "ami-1"}})
    assert (claim.status.provider_id, claim.status.image_id) == ("aws:///a/i-1", "ami-1")


def test_model_is_frozen() -> None:
    with pytest.raises(ValidationError):
        Taint(key="a", effect="NoSchedule").key = "b"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("spec", "family", "alias"),
    (
        ({"amiSelectorTerms": [{"alias": "al2023@v1"}]}, "AL2023", ("al2023", "v1")),
        (
            {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}], "amiFamily": "Custom"},
            "Custom",
            ("bottlerocket", "latest"),
        ),
        ({"amiSelectorTerms": [{"alias": "windows2025@latest"}]}, "Windows2025", ("windows2025", "latest")),
        ({"amiSelectorTerms": [{"id": "ami-1"}], "amiFamily": "AL2"}, "AL2", None),
        ({}, "Custom", None),
    ),
)
def test_ami_family_is_the_field_or_that_of_the_alias(spec: Object, family: str, alias: tuple[str, str] | None) -> None:
    nodeclass = EC2NodeClass.from_object({"spec": spec})
    assert nodeclass.ami_family == family
    assert nodeclass.alias == alias
