"""The IAM policies that are shipped in deploy/iam, rendered for one cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SHIPPED = sorted((Path(__file__).parents[3] / "deploy" / "iam").glob("*.json"))


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


def shipped_policies(*, cluster: str, region: str, account: str, partition: str = "aws") -> dict[str, dict[str, Any]]:
    """The documents for a cluster, by the names of their files without the ending."""
    return {
        file.stem: render_policy(file.read_text(), cluster=cluster, region=region, account=account, partition=partition)
        for file in SHIPPED
    }
