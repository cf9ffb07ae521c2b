"""The IAM policies that are shipped in deploy/iam, rendered for one cluster."""

from __future__ import annotations

from typing import Any

from deploy.shipped import IAM_FILES, render


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
    return render(text, values)


def shipped_policies(*, cluster: str, region: str, account: str, partition: str = "aws") -> dict[str, dict[str, Any]]:
    """The documents for a cluster, by the names of their files without the ending."""
    return {
        file.stem: render_policy(file.read_text(), cluster=cluster, region=region, account=account, partition=partition)
        for file in IAM_FILES
    }
