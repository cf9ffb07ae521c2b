"""The IAM policy that is shipped in deploy/iam, rendered for one cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SHIPPED = Path(__file__).parents[3] / "deploy" / "iam" / "controller-policy.json"


def render_policy(
    text: str, *, cluster: str, region: str, account: str, node_role: str | None = None, partition: str = "aws"
) -> dict[str, Any]:
    """Fill the placeholders of a policy document; the node role is KarpenterNodeRole-<cluster> unless named."""
    values = {
        "ClusterName": cluster,
        "AWS::Region": region,
        "AWS::AccountId": account,
        "AWS::Partition": partition,
        "NodeRoleName": node_role or f"KarpenterNodeRole-{cluster}",
        "InterruptionQueueName": cluster,
    }
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    rendered: dict[str, Any] = json.loads(text)
    return rendered


def shipped_policy(*, cluster: str, region: str, account: str) -> dict[str, Any]:
    """deploy/iam/controller-policy.json for a cluster."""
    return render_policy(SHIPPED.read_text(), cluster=cluster, region=region, account=account)
