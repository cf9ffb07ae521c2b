"""Builders of the objects that tests apply: NodePools, EC2NodeClasses, Deployments, and standalone NodeClaims.

All objects of a test have the NodePool's name, which its pods select nodes by.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tenure.apis import labels

Object = dict[str, Any]
NODE_CLASS = "shared"
"""The default EC2NodeClass of tests. Instances of different NodePools differ by their NodePool tag."""
TWO_CPUS = "m6i.large"
PAUSE = "public.ecr.aws/eks-distro/kubernetes/pause:3.10"
DISCOVERY = {"tags": {"karpenter.sh/discovery": "demo"}}


def node_class(name: str = NODE_CLASS, alias: str = "al2023@latest") -> Object:
    return {
        "apiVersion": labels.EC2NODECLASS_API_VERSION,
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": {
            "role": "KarpenterNodeRole-demo",
            "amiSelectorTerms": [{"alias": alias}],
            "subnetSelectorTerms": [DISCOVERY],
            "securityGroupSelectorTerms": [DISCOVERY],
        },
    }


def node_pool(
    name: str,
    *,
    types: Sequence[str] = (TWO_CPUS,),
    capacity_type: str | Sequence[str] = "on-demand",
    after: str = "1s",
    budget: str = "100%",
    startup_taints: Sequence[Object] = (),
    limits: Mapping[str, str] | None = None,
    of_class: str = NODE_CLASS,
    replicas: int | None = None,
    expire_after: str = "720h",
) -> Object:
    """A WhenEmpty NodePool with few instance types, so that launches are predictable; static with `replicas`."""
    return {
        "apiVersion": labels.NODEPOOL_API_VERSION,
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": _node_class_ref(of_class),
                    "requirements": requirements(types, capacity_type),
                    "expireAfter": expire_after,
                    **({"startupTaints": list(startup_taints)} if startup_taints else {}),
                }
            },
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": after,
                "budgets": [{"nodes": budget}],
            },
            **({"limits": dict(limits)} if limits else {}),
            **({"replicas": replicas} if replicas is not None else {}),
        },
    }


def requirements(types: Sequence[str], capacity_type: str | Sequence[str] = "on-demand") -> list[Object]:
    capacity_types = [capacity_type] if isinstance(capacity_type, str) else list(capacity_type)
    return [
        {"key": labels.INSTANCE_TYPE, "operator": "In", "values": list(types)},
        {"key": labels.CAPACITY_TYPE, "operator": "In", "values": capacity_types},
    ]


def node_claim(name: str) -> Object:
    """A standalone NodeClaim without NodePool, with a label by which its test finds it."""
    return {
        "apiVersion": labels.NODEPOOL_API_VERSION,
        "kind": "NodeClaim",
        "metadata": {"name": name, "labels": {OF_TEST: name}},
        "spec": {
            "nodeClassRef": _node_class_ref(),
            "requirements": requirements((TWO_CPUS,)),
            "resources": {"requests": {"cpu": "1"}},
        },
    }


OF_TEST = "tests.tenure.sh/of"


def deployment(name: str, *, pool: str, replicas: int = 0, pod: Object | None = None) -> Object:
    """Each pod fills a node of two CPUs, unless `pod` overrides its spec."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, **_pods_of(name, pod_spec(pool) | (pod or {}))},
    }


def daemon_set(name: str, *, pool: str) -> Object:
    spec = pod_spec(pool, cpu="10m") | {"tolerations": [{"operator": "Exists"}]}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": _pods_of(name, spec),
    }


def pod_spec(pool: str, *, cpu: str = "1500m", **more: str) -> Object:
    """`more`: other resources, such as a GPU."""
    requests = {"cpu": cpu, "memory": "256Mi"} | more
    extended = {key: amount for key, amount in more.items() if "/" in key}
    return {
        "nodeSelector": {labels.NODEPOOL: pool},
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "pause", "image": PAUSE, "resources": {"requests": requests, "limits": extended}}],
    }


def pending_pod(pool: str, name: str, *, do_not_disrupt: str = "", **requests: str) -> Object:
    """A pod that requests more CPU than a node has. kube-scheduler reads an amount above 64 bits as zero."""
    requests = {"cpu": "3500m", **requests}
    container = {"name": "main", "image": PAUSE, "resources": {"requests": requests, "limits": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{pool}-{name}",
            "namespace": "default",
            "annotations": {labels.DO_NOT_DISRUPT: do_not_disrupt} if do_not_disrupt else {},
        },
        "spec": {"nodeSelector": {labels.NODEPOOL: pool}, "containers": [container]},
    }


def static_pod(name: str, node: Object) -> Object:
    """The mirror pod of a static pod."""
    spec = {
        "nodeName": node["metadata"]["name"],
        "containers": [{"name": "pause", "image": PAUSE}],
        "tolerations": [{"operator": "Exists"}],
    }
    owner = {"apiVersion": "v1", "kind": "Node", "name": node["metadata"]["name"], "uid": node["metadata"]["uid"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"kubernetes.io/config.mirror": name},
            "ownerReferences": [owner | {"controller": True}],
        },
        "spec": spec,
    }


def _pods_of(name: str, spec: Object) -> Object:
    return {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
    }


def _node_class_ref(name: str = NODE_CLASS) -> Object:
    return {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name}


def lifecycle_policy(name: str, *pools: str, **spec: Any) -> Object:
    """A policy for these NodePools, or for all NodePools."""
    selector = {"nodePoolSelector": {"names": list(pools)}} if pools else {}
    return {
        "apiVersion": labels.LIFECYCLEPOLICY_API_VERSION,
        "kind": "LifecyclePolicy",
        "metadata": {"name": name},
        "spec": {**selector, **spec},
    }
