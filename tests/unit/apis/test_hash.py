"""Static hashes of NodePools and EC2NodeClasses: covered fields, ignored fields, and stability across releases."""

from copy import deepcopy
from typing import Any

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.hash import HASH_VERSION, nodeclass_hash, nodepool_hash
from tenure.apis.nodepool import NodePool
from tests.support.apis.crd_rows import ABSENT, NODECLASS, NODEPOOL, Object, apply_patch

TAINT_A = {"key": "a", "effect": "NoSchedule"}
TAINT_B = {"key": "b", "value": "x", "effect": "NoExecute"}
POOL = apply_patch(
    NODEPOOL,
    {
        "template__metadata": {"labels": {"team": "a", "tier": "b"}, "annotations": {"note": "x"}},
        "template__spec__taints": [TAINT_A, TAINT_B],
        "template__spec__terminationGracePeriod": "1h",
    },
)
CLASS = apply_patch(
    NODECLASS,
    {
        "tags": {"team": "a"},
        "kubelet": {"maxPods": 20, "clusterDNS": ["10.0.0.10"]},
        "blockDeviceMappings": [
            {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi", "encrypted": True}},
            {"deviceName": "/dev/xvdb", "ebs": {"volumeSize": "20Gi"}},
        ],
        "metadataOptions": {"httpTokens": "required", "httpEndpoint": "enabled"},
    },
)


def pool_hash(base: Object = POOL, **patch: Any) -> str:
    return nodepool_hash(NodePool.from_object(apply_patch(base, patch)))


def class_hash(base: Object = CLASS, **patch: Any) -> str:
    return nodeclass_hash(EC2NodeClass.from_object(apply_patch(base, patch)))


def test_hashes_of_known_objects_are_stable() -> None:
    # If one of these hashes changes, HASH_VERSION must change too. Otherwise every existing node drifts at once.
    assert HASH_VERSION == "tenure-v2"
    assert (pool_hash(), pool_hash(NODEPOOL)) == ("4663607244343527558", "15481289062242544615")
    assert (class_hash(), class_hash(NODECLASS)) == ("11389779544506743920", "1139857388368053577")


def test_hash_is_the_decimal_text_of_64_bits() -> None:
    assert 0 <= int(pool_hash()) < 2**64
    assert 0 <= int(class_hash()) < 2**64


@pytest.mark.parametrize(
    "patch",
    (
        {"template__metadata__labels": {"team": "b", "tier": "b"}},
        {"template__metadata__labels": {"team": "a"}},
        {"template__metadata__labels": {"team": "a", "tier": "b", "empty": ""}},
        {"template__metadata__annotations": {"note": "y"}},
        {"template__spec__taints": [TAINT_A]},
        {"template__spec__taints": [TAINT_A, TAINT_B | {"value": "y"}]},
        {"template__spec__startupTaints": [TAINT_A]},
        {"template__spec__nodeClassRef__name": "other"},
        {"template__spec__terminationGracePeriod": "2h"},
        {"template__spec__terminationGracePeriod": ABSENT},
        {"template__spec__expireAfter": "1h"},
        {"template__spec__expireAfter": "Never"},
    ),
    ids=str,
)
def test_nodepool_hash_covers_field(patch: Object) -> None:
    assert pool_hash(**patch) != pool_hash()


@pytest.mark.parametrize(
    "patch",
    (
        {"template__spec__requirements": [{"key": "a", "operator": "Exists"}]},
        {"disruption": {"consolidateAfter": "Never"}},
        {"limits": {"cpu": "10"}},
        {"weight": 10},
        {"replicas": 3},
        {"template__spec__taints": [TAINT_B, TAINT_A]},
        {"template__spec__taints": [TAINT_A, TAINT_B, TAINT_A]},
        {"template__spec__startupTaints": []},
        {"template__metadata__labels": {"tier": "b", "team": "a"}},
        {"template__spec__terminationGracePeriod": "60m"},
        {"template__spec__expireAfter": "720h"},
        {"template__spec__expireAfter": "720h0m0s"},
        {"template__spec__futureField": "x"},
    ),
    ids=str,
)
def test_nodepool_hash_ignores_change(patch: Object) -> None:
    assert pool_hash(**patch) == pool_hash()


@pytest.mark.parametrize(
    "patch",
    (
        {"placementGroupSelector": {"name": "a"}},
        {"associatePublicIPAddress": True},
        # An explicit False differs from the default, which the subnet decides.
        {"associatePublicIPAddress": False},
        {"userData": "x"},
        {"role": "other"},
        {"role": ABSENT, "instanceProfile": "nodes"},
        {"tags": {"team": "b"}},
        {"kubelet": {"maxPods": 21, "clusterDNS": ["10.0.0.10"]}},
        {"kubelet": {"maxPods": "20", "clusterDNS": ["10.0.0.10"]}},
        {"kubelet": ABSENT},
        {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "101Gi", "encrypted": True}}]},
        {"instanceStorePolicy": "RAID0"},
        {"networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}]},
        {"detailedMonitoring": True},
        {"metadataOptions__httpTokens": "optional"},
        {"connectionTracking": {"udpTimeout": 30}},
        {"context": "a"},
        {"cpuOptions": {"nestedVirtualization": "enabled"}},
        {"enclaveOptions": {"enabled": True}},
        {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]},
        {"amiFamily": "Custom"},
    ),
    ids=str,
)
def test_nodeclass_hash_covers_field(patch: Object) -> None:
    assert class_hash(**patch) != class_hash()


@pytest.mark.parametrize(
    "patch",
    (
        {"subnetSelectorTerms": [{"id": "subnet-1"}]},
        {"securityGroupSelectorTerms": [{"id": "sg-1"}]},
        {"capacityReservationSelectorTerms": [{"id": "cr-1"}]},
        {"amiSelectorTerms": [{"alias": "al2023@v20250701"}]},
        {"amiSelectorTerms": [{"id": "ami-1"}], "amiFamily": "AL2023"},
        {"amiFamily": "AL2023"},
        {"ipPrefixCount": 3},
        {"kubelet": {"clusterDNS": ["10.0.0.10"], "maxPods": 20}},
        {"metadataOptions": ABSENT},
        {"enclaveOptions": {"enabled": False}},
        {"metadataOptions__httpPutResponseHopLimit": 1},
        {"networkInterfaces": []},
        {"blockDeviceMappings": list(reversed(CLASS["spec"]["blockDeviceMappings"]))},
        {"futureField": "x"},
    ),
    ids=str,
)
def test_nodeclass_hash_ignores_change(patch: Object) -> None:
    assert class_hash(**patch) == class_hash()


def test_absent_and_empty_kubelet_have_the_same_hash() -> None:
    assert class_hash(NODECLASS, kubelet={}) == class_hash(NODECLASS)


def test_nodeclass_hash_covers_the_ca_bundle_of_the_cluster() -> None:
    nodeclass = EC2NodeClass.from_object(CLASS)
    assert nodeclass_hash(nodeclass, ca_bundle="a") != nodeclass_hash(nodeclass)
    assert nodeclass_hash(nodeclass, ca_bundle="a") != nodeclass_hash(nodeclass, ca_bundle="b")


def test_nodeclass_hash_ignores_status_and_metadata() -> None:
    observed = deepcopy(CLASS) | {"metadata": {"name": "other", "generation": 9}, "status": {"instanceProfile": "x"}}
    assert class_hash(observed) == class_hash()
