"""Karpenter's kinds as frozen models that read and write what the API server holds."""

from model.kinds.capacitybuffer import CapacityBuffer
from model.kinds.ec2nodeclass import EC2NodeClass, EC2NodeClassSpec, EC2NodeClassStatus
from model.kinds.lifecycle_rules import LifecycleRules
from model.kinds.lifecyclepolicy import LifecyclePolicy
from model.kinds.meta import Condition, KubeObject, NodeClassRef, ObjectMeta, OwnerReference, Requirement, Taint
from model.kinds.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from model.kinds.nodeoverlay import NodeOverlay
from model.kinds.nodepool import Budget, Disruption, NodePool, NodePoolSpec, NodePoolStatus

__all__ = [
    "Budget",
    "CapacityBuffer",
    "Condition",
    "Disruption",
    "EC2NodeClass",
    "EC2NodeClassSpec",
    "EC2NodeClassStatus",
    "KubeObject",
    "LifecyclePolicy",
    "LifecycleRules",
    "NodeClaim",
    "NodeClaimSpec",
    "NodeClaimStatus",
    "NodeClassRef",
    "NodeOverlay",
    "NodePool",
    "NodePoolSpec",
    "NodePoolStatus",
    "ObjectMeta",
    "OwnerReference",
    "Requirement",
    "Taint",
]
