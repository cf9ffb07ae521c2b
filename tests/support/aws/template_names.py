"""Prints the launch template names of fixed classes. The golden test runs it in separate processes."""

import sys
from typing import Any

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.amifamily.families import family_of
from tenure.aws.amifamily.user_data import render
from tenure.aws.amifamily.user_data.bootstrap import bootstrap_of
from tenure.aws.instance.launch_templates import launch_template
from tenure.aws.tags import node_tags
from tests.support.aws.builders import CLUSTER, SETTINGS, build_nodeclaim, build_nodeclass, resolved_status

TAGS = {"team": "a", "cost-center": "b", "owner": "c"}
KUBELET: dict[str, Any] = {
    "maxPods": 42,
    "systemReserved": {"cpu": "100m", "memory": "100Mi"},
    "evictionHard": {"memory.available": "5%", "nodefs.available": "10%"},
}
CLASSES: dict[str, dict[str, Any]] = {
    "plain": {},
    "al2": {"amiSelectorTerms": [{"alias": "al2@latest"}]},
    "bottlerocket": {"amiSelectorTerms": [{"alias": "bottlerocket@latest"}]},
    "full": {
        "tags": TAGS,
        "kubelet": KUBELET,
        "userData": "#!/bin/bash\necho hello\n",
        "detailedMonitoring": True,
        "associatePublicIPAddress": False,
        "blockDeviceMappings": [
            {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi", "volumeType": "gp3", "encrypted": True}}
        ],
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 2},
    },
}


def reverse_order(value: Any) -> Any:
    """The same object with the order of its mapping keys reversed."""
    if isinstance(value, dict):
        return {key: reverse_order(one) for key, one in reversed(value.items())}
    return value


def template_name(nodeclass: EC2NodeClass, capacity_type: str) -> str:
    family = family_of(nodeclass)
    nodeclaim = build_nodeclaim(("team", "In", "a"), (labels.ARCH, "In", "amd64"))
    bootstrap = bootstrap_of(nodeclass, nodeclaim, family, CLUSTER, capacity_type=capacity_type, max_pods=29)
    return launch_template(
        nodeclass,
        family,
        SETTINGS,
        image_id="ami-standard-amd64",
        user_data=render(family, bootstrap),
        tags=node_tags(SETTINGS, nodeclass, "general"),
        capacity_type=capacity_type,
    ).name


def main(order: str) -> None:
    for title, spec in CLASSES.items():
        written = reverse_order(spec) if order == "turned" else spec
        one = build_nodeclass(resolved_status(), **written)
        print(title, template_name(one, "on-demand"), template_name(one, "spot"))


if __name__ == "__main__":
    main(sys.argv[1])
