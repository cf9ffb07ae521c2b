"""The lists of scheduling fields against the OpenAPI of the API server: a field without an entry fails here."""

import pytest

from tenure.kube.client.client import KubeClient
from tenure.kube.facts.scheduling_fields import STRUCTS
from tenure.sandbox.controlplane.versions import selected_minor

PATHS = {"StorageClass": "/openapi/v3/apis/storage.k8s.io/v1"}
PREFIXES = {"StorageClass": "io.k8s.api.storage.v1"} | dict.fromkeys(
    ("LabelSelector", "LabelSelectorRequirement"), "io.k8s.apimachinery.pkg.apis.meta.v1"
)
NOT_SERVED = {
    "1.29": {
        "Container": {"restartPolicyRules"},
        "ContainerRestartRule": {"action", "exitCodes"},
        "NodeSpec": {"podPreemptionPolicy"},
        "NodeStatus": {"declaredFeatures", "features", "runtimeHandlers"},
        "PodSpec": {"evictionResponders", "hostnameOverride", "resources", "schedulingGroup", "workloadRef"},
        "Volume": {"image"},
        "VolumeMount": {"bindMountOptions", "recursiveReadOnly"},
    },
    "1.34": {
        "NodeSpec": {"podPreemptionPolicy"},
        "NodeStatus": {"declaredFeatures"},
        "PodSpec": {"evictionResponders", "schedulingGroup", "workloadRef"},
        "VolumeMount": {"bindMountOptions"},
    },
    "1.37": {"PodSpec": {"workloadRef"}},
}[selected_minor()]
"""Fields of other Kubernetes versions than the sandbox's."""


@pytest.mark.parametrize("name", sorted(STRUCTS))
async def test_every_field_of_the_api_has_an_effect_on_scheduling_or_none(admin: KubeClient, name: str) -> None:
    document = await admin.request("GET", PATHS.get(name, "/openapi/v3/api/v1"))
    prefix = PREFIXES.get(name, "io.k8s.api.core.v1")
    served = set(document["components"]["schemas"].get(f"{prefix}.{name}", {}).get("properties", {}))
    listed = STRUCTS[name].fields
    assert served - listed == set(), "fields without an entry in scheduling_fields.py"
    assert listed - served == NOT_SERVED.get(name, set()), "entries that are not fields of the API"
