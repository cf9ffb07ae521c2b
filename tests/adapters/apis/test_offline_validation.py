"""`tenure validate` accepts and rejects the same objects as the API server, and names the same fields.

The server shortens the fields of the metadata. The tables of test_accept.py are compared in tests/unit/cli/validate;
here are objects that no table has.
"""

import json
from typing import Any

import pytest

from tenure.cli.validate.crd import custom_resource_of
from tenure.sandbox.controlplane.versions import selected_minor
from tests.adapters.apis.server import ApiServerClient
from tests.support.apis.crd_rows import (
    CAPACITYBUFFER,
    LIFECYCLEPOLICY,
    NODECLASS,
    NODEOVERLAY,
    NODEPOOL,
    Object,
    apply_patch,
)

NAME = {"name": "table"}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "1"}
BUDGET = {"nodes": "1", "schedule": "0 9 * * *", "duration": "1h"}


def pool(**patch: Any) -> Object:
    return apply_patch(NODEPOOL, patch)


def with_budget(**fields: Any) -> Object:
    return pool(disruption={"consolidateAfter": "1m", "budgets": [{**BUDGET, **fields}]})


def with_time(time: str) -> Object:
    return pool(template__spec__taints=[{"key": "a", "effect": "NoSchedule", "timeAdded": time}])


def with_volume(**fields: Any) -> Object:
    return apply_patch(NODECLASS, {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": fields}]})


def with_metadata(**fields: Any) -> Object:
    return {**NODEPOOL, "metadata": {**NAME, **fields}}


OBJECTS: dict[str, Object] = {
    "the smallest pool": NODEPOOL,
    "no spec": {key: value for key, value in NODEPOOL.items() if key != "spec"},
    "a list as spec": {**NODEPOOL, "spec": []},
    "a text as spec": {**NODEPOOL, "spec": "none"},
    "an unknown field at the root": {**NODEPOOL, "data": {}},
    "a status with a wrong type": {**NODEPOOL, "status": {"nodes": "many"}},
    "a status with an unknown field": {**NODEPOOL, "status": {"colour": "blue"}},
    "null for a field": pool(weight=None),
    "null for a value of a map": pool(limits={"cpu": None}),
    "null in a list": pool(template__spec__requirements=[None]),
    "null for a field with a default": with_budget(nodes=None),
    "null for a list": pool(disruption=None),
    "a whole floating-point number": pool(weight=5.0),
    "a fraction": pool(weight=5.5),
    "a boolean as number": pool(weight=True),
    "a number as text": pool(weight="5"),
    "a large floating-point number": pool(weight=1e300),
    "an integer above 64 bits": pool(limits={"cpu": 2**70}),
    "an integer of 64 bits": pool(limits={"cpu": 2**63 - 1}),
    "a fraction as quantity": pool(limits={"cpu": 1.5}),
    "a boolean as quantity": pool(limits={"cpu": True}),
    "a quantity with digits of another script": pool(limits={"cpu": "٣"}),
    "a duration with a line break": pool(template__spec__expireAfter="1h\n"),
    "a schedule with no-break spaces": with_budget(schedule="0\u00a09\u00a0*\u00a0*\u00a0*"),
    "a schedule with a line break": with_budget(schedule="0 9 * *\n*"),
    "a schedule with a vertical tab": with_budget(schedule="0\v9\v*\v*\v*"),
    "a reason twice": with_budget(reasons=["Empty", "Empty"]),
    "a schedule without duration": with_budget(duration=None),
    "a taint with a time": with_time("2025-01-01T00:00:00Z"),
    "a taint with a time in lower case": with_time("2025-01-01t00:00:00z"),
    "a taint with a date": with_time("2025-01-01"),
    "a taint with a leap second": with_time("2016-12-31T23:59:60Z"),
    "a taint with a time without zone": with_time("2025-01-01T00:00:00"),
    "an unknown field in a list": pool(template__spec__requirements=[{"key": "a", "operator": "Exists", "value": "b"}]),
    "kubelet of v1beta1": pool(template__spec__kubelet={"maxPods": 110}),
    "values that are not texts": pool(template__spec__requirements=[{"key": "a", "operator": "In", "values": [1]}]),
    "Gt of a word": pool(template__spec__requirements=[{"key": "a", "operator": "Gt", "values": ["x"]}]),
    "Gt of a huge number": pool(template__spec__requirements=[{"key": "a", "operator": "Gt", "values": ["9" * 30]}]),
    "a label with an emoji": pool(template__metadata={"labels": {"team": "🚀"}}),
    "a label key with a slash at its end": pool(template__metadata={"labels": {"example.com/": "a"}}),
    "a name in upper case": with_metadata(name="Table"),
    "a name of 254 characters": with_metadata(name="a" * 254),
    "a name with an underscore": with_metadata(name="a_b"),
    "metadata labels": with_metadata(labels={"example.com/team": "a"}),
    "a metadata label with a space": with_metadata(labels={"team": "a b"}),
    "a metadata label key with a space": with_metadata(labels={"a b": "a"}),
    "a metadata label key of 64 characters": with_metadata(labels={"a" * 64: "a"}),
    "a metadata label value of 64 characters": with_metadata(labels={"team": "a" * 64}),
    "a metadata label that is a number": with_metadata(labels={"team": 5}),
    "an annotation key in upper case": with_metadata(annotations={"Example.com/Team": "a b"}),
    "an annotation that is a boolean": with_metadata(annotations={"team": True}),
    "an annotation key with two slashes": with_metadata(annotations={"a/b/c": "d"}),
    "an unknown metadata field": with_metadata(label={}),
    "a metadata time that is none": with_metadata(creationTimestamp="yesterday"),
    "a namespace": with_metadata(namespace="default"),
    "managed fields": with_metadata(managedFields=[]),
    "annotations of 300 KB": with_metadata(annotations={"a": "x" * 300_000}),
    "labels that are a list": with_metadata(labels=[]),
    "no labels": with_metadata(labels=None),
    "a finalizer": with_metadata(finalizers=["example.com/wait"]),
    "a finalizer with a space": with_metadata(finalizers=["a b"]),
    "an owner": with_metadata(ownerReferences=[OWNER]),
    "an owner without name": with_metadata(ownerReferences=[{**OWNER, "name": ""}]),
    "an owner with an unknown field": with_metadata(ownerReferences=[{**OWNER, "namespace": "default"}]),
    "the smallest class": NODECLASS,
    "any field of the kubelet": apply_patch(NODECLASS, {"kubelet": {"maxPods": 110, "unknown": {"a": [None]}}}),
    "user data that is a map": apply_patch(NODECLASS, {"userData": {}}),
    "a hop limit as text": apply_patch(NODECLASS, {"metadataOptions": {"httpPutResponseHopLimit": "1"}}),
    "a volume of 0 Gi": with_volume(volumeSize="0Gi"),
    "iops beyond 32 bits": with_volume(volumeSize="1Gi", iops=2**40),
    "a tag that is a number": apply_patch(NODECLASS, {"tags": {"team": 5}}),
    "two root volumes": apply_patch(
        NODECLASS, {"blockDeviceMappings": [{"rootVolume": True, "ebs": {"volumeSize": "1Gi"}} for _ in range(2)]}
    ),
    "an overlay with a price with a line break": apply_patch(NODEOVERLAY, {"price": "1\n"}),
    "an overlay with a price of another script": apply_patch(NODEOVERLAY, {"price": "١"}),
    "an overlay with an adjustment": apply_patch(NODEOVERLAY, {"priceAdjustment": "-10%"}),
    "a policy": LIFECYCLEPOLICY,
    "a policy with a reason twice": apply_patch(
        LIFECYCLEPOLICY,
        {"disruption": {"windows": [{"schedule": "0 9 * * *", "duration": "1h", "reasons": ["Empty", "Empty"]}]}},
    ),
    "a policy with hooks of one name": apply_patch(
        LIFECYCLEPOLICY, {"hooks": {"beforeDrain": [{"name": "a", "http": {"url": "https://a.example.com"}}] * 2}}
    ),
}
if selected_minor() != "1.37":
    # Kubernetes 1.37 rejects it, and `tenure validate` follows the older versions.
    OBJECTS["a buffer with more than 32 bits of replicas"] = apply_patch(CAPACITYBUFFER, {"replicas": 2**33})


@pytest.mark.parametrize("found", OBJECTS.values(), ids=OBJECTS)
async def test_offline_validation_agrees_with_api_server(found: Object, server: ApiServerClient) -> None:
    status, response = await server.create(json.loads(json.dumps(found)))
    resource = custom_resource_of(found)
    assert resource is not None
    stored, findings = resource.validate(found)
    problems = [str(one) for one in findings]
    assert (status == 201) is (findings == []), (response.get("message"), problems)
    if findings:
        named = [one.field for one in findings if not one.field.startswith("metadata")]
        assert not named or any(field in response["message"] for field in named), (response["message"], problems)
    else:
        assert {**stored, "metadata": {}, "status": {}} == {**response, "metadata": {}, "status": {}}
