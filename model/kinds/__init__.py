"""Karpenter's kinds as frozen models that read and write what the API server holds."""

from model.kinds.ec2nodeclass import EC2NodeClass
from model.kinds.meta import Condition, NodeClassRef, ObjectMeta, OwnerReference, Requirement, Taint
from model.kinds.nodeclaim import NodeClaim
from model.kinds.nodepool import NodePool

__all__ = [
    "Condition",
    "EC2NodeClass",
    "NodeClaim",
    "NodeClassRef",
    "NodePool",
    "ObjectMeta",
    "OwnerReference",
    "Requirement",
    "Taint",
]
