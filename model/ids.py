"""Names of things, each its own type so that two cannot be swapped by accident."""

from typing import NewType

ClusterName = NewType("ClusterName", str)
ClaimName = NewType("ClaimName", str)
PoolName = NewType("PoolName", str)
NodeClassName = NewType("NodeClassName", str)
NodeName = NewType("NodeName", str)
InstanceId = NewType("InstanceId", str)
ProviderId = NewType("ProviderId", str)
Uid = NewType("Uid", str)


def instance_id_of(provider_id: str) -> InstanceId:
    """`aws:///us-west-2a/i-0123` names instance `i-0123`; raises ValueError for any other form."""
    prefix, _, tail = provider_id.rpartition("/")
    if not prefix.startswith("aws:///") or not tail.startswith("i-"):
        raise ValueError(f"provider id {provider_id!r} is not of the form aws:///<zone>/<instance id>")
    return InstanceId(tail)
