"""Tags of the AWS resources that Tenure creates, as the IAM policy requires them.

Discovery, permissions and garbage collection depend on them, so they override the tags of an EC2NodeClass.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.settings import AwsSettings

OWNED: Final = "owned"
TAG_LAUNCH_GROUP: Final = "tenure.sh/launch-group"
TAG_LAUNCH_TOKEN: Final = "tenure.sh/launch-token"
LAUNCH_TAGGED: Final = ("fleet", "instance", "volume")
"""Resources with `instance_tags`."""


def cluster_tag(settings: AwsSettings) -> str:
    return f"{labels.TAG_CLUSTER_PREFIX}{settings.cluster_name}"


def node_tags(settings: AwsSettings, node_class: EC2NodeClass, pool: str) -> dict[str, str]:
    """Tags of fleets, instances, volumes, network interfaces, spot requests and launch templates."""
    return _class_tags(settings, node_class) | {labels.TAG_NODEPOOL: pool}


def instance_tags(node: Mapping[str, str], group_id: str, client_token: str, nodeclaim: str = "") -> dict[str, str]:
    """Tags of the fleet, the instances and the volumes of a launch.

    `node`: `node_tags`. The token finds instances of a lost response. `nodeclaim` is set in a launch of one instance;
    instances of a larger group get it after their launch.
    """
    tags = {**node, TAG_LAUNCH_GROUP: group_id, TAG_LAUNCH_TOKEN: client_token}
    return tags | ({labels.TAG_NODECLAIM: nodeclaim} if nodeclaim else {})


def profile_tags(settings: AwsSettings, node_class: EC2NodeClass) -> dict[str, str]:
    return _class_tags(settings, node_class) | {labels.REGION: settings.region}


def _class_tags(settings: AwsSettings, node_class: EC2NodeClass) -> dict[str, str]:
    return {
        **node_class.spec.tags,
        cluster_tag(settings): OWNED,
        labels.TAG_EKS_CLUSTER_NAME: settings.cluster_name,
        labels.TAG_NODECLASS: node_class.name,
    }


def as_list(tags: Mapping[str, str]) -> list[Any]:
    """The tags as the APIs accept them, sorted by key."""
    return [{"Key": key, "Value": tags[key]} for key in sorted(tags)]


def tag_specifications(kinds: Iterable[str], tags: Mapping[str, str]) -> list[Any]:
    return [{"ResourceType": kind, "Tags": as_list(tags)} for kind in kinds]


def as_dict(tags: Any) -> dict[str, str]:
    """Parse tags of an API response, which may be None."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags or ()}


def tag_filters(tags: Mapping[str, str]) -> list[Any]:
    """Filters for a selector's tags; the value `*` matches any value."""
    return [
        {"Name": "tag-key", "Values": [key]} if value == "*" else {"Name": f"tag:{key}", "Values": [value]}
        for key, value in sorted(tags.items())
    ]
