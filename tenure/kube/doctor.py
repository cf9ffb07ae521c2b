"""Checks of the cluster: version, CRDs, the worker's permissions, and NodePools and EC2NodeClasses that are not Ready.

The checks only read. They use access reviews for permissions, which the API server does not store.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import yaml

from deploy.commands import REUSE_VALUES, START_WORKER, apply_examples, set_in_chart
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.meta import Condition
from tenure.apis.nodepool import NodePool
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.client.client import KubeClient
from tenure.kube.client.resources import EC2_NODE_CLASSES, LIFECYCLE_POLICIES, NODE_CLAIMS, NODE_POOLS
from tenure.kube.facts.objects import is_ours
from tenure.model.base import Value
from tenure.model.errors import Finding, Forbidden, Subject

AREA: Final = "cluster"
RIGHTS: Final = "rights"
NODES_GROUP: Final = "system:nodes"
MIN_VERSION, MAX_VERSION = (1, 29), (1, 37)
"""Supported versions of Kubernetes. The newest is that of Karpenter 1.15."""
_REVIEWS: Final = "/apis/authorization.k8s.io/v1"
_MAX_CONCURRENT_REVIEWS: Final = 16


class AccessRight(Value):
    """A verb on a resource; an empty namespace means all namespaces."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def describe(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{'.' if self.group else ''}{self.group}{where}"

    def move(self, before: str, after: str) -> "AccessRight":
        """The right of a worker that runs in the namespace `after`, if this one is for the namespace `before`."""
        if self.namespace != before:
            return self
        return self.model_copy(update={"namespace": after, "name": after if self.name == before else self.name})


async def check_version(client: KubeClient, cluster: str, region: str) -> list[Finding]:
    """`cluster`: its name in EKS. Raises model.faults if the API server does not answer."""
    response = await client.request("GET", "/version")
    at, version = Subject(AREA, "API server"), response.get("gitVersion", "")
    match = re.match(r"v(\d+)\.(\d+)\.", version)
    numbers = (int(match[1]), int(match[2])) if match else MIN_VERSION
    if not MIN_VERSION <= numbers <= MAX_VERSION:
        low, high = (".".join(map(str, bound)) for bound in (MIN_VERSION, MAX_VERSION))
        todo = f"{set_in_chart('image.tag=VERSION')}, from the sources of a version of Tenure that supports it"
        if numbers < MIN_VERSION:
            update = f"aws eks update-cluster-version --name {cluster} --region {region}"
            todo = f"{update} --kubernetes-version {low}, one minor at a time"
        return [at.advice(f"{version} is outside of the supported versions {low} to {high}", todo)]
    return [at.ok(version)]


async def check_kinds(client: KubeClient) -> list[Finding]:
    found = []
    for resource in (NODE_POOLS, NODE_CLAIMS, EC2_NODE_CLASSES, LIFECYCLE_POLICIES):
        at = Subject(AREA, f"{resource.plural}.{resource.group}")
        response = await client.send("GET", resource.path(), params={"limit": "1"})
        if response.code == 404:
            found.append(at.problem("the kind is not installed", "kubectl apply -f deploy/crds"))
        elif not response.is_success:
            found.append(
                at.unknown(f"cannot be listed (HTTP {response.code})", "run doctor with credentials that may list it")
            )
        else:
            found.append(at.ok(f"served as {resource.api_version.rpartition('/')[2]}"))
    return found


async def check_schemas(client: KubeClient, expected: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    """Whether the installed CRDs are those of this version. No findings about those that these credentials cannot read.

    `expected`: by name.
    """
    found = []
    for name, document in sorted(expected.items()):
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
        response = await client.send("GET", path)
        if not response.is_success:
            continue
        installed = _schemas(response.parse_json())
        outdated = [version for version, schema in _schemas(document).items() if installed.get(version) != schema]
        if outdated:
            message = f"the schema of {', '.join(outdated)} is not that of this version of Tenure"
            found.append(Subject(AREA, name).problem(message, "tenure crds --apply, or upgrade the chart tenure-crds"))
    return found


def _schemas(document: Mapping[str, Any]) -> dict[str, Any]:
    return {one["name"]: one["schema"]["openAPIV3Schema"] for one in document["spec"]["versions"]}


async def check_chart(client: KubeClient, version: str) -> list[Finding]:
    """Whether the installed chart and the image of its workers are of this version. No findings without a chart.

    `version`: of this package. A tag that is not a version is not compared.
    """
    parameters = {"labelSelector": "app.kubernetes.io/name=tenure"}
    response = await client.send("GET", "/apis/apps/v1/deployments", params=parameters)
    found = []
    for one in response.parse_json().get("items", ()) if response.is_success else ():
        metadata = one["metadata"]
        chart = metadata["labels"].get("app.kubernetes.io/version", "")
        image = one["spec"]["template"]["spec"]["containers"][0]["image"]
        tag = image.partition("@")[0].rpartition("/")[2].partition(":")[2]
        at = Subject(AREA, f"chart {metadata['namespace']}/{metadata['name']}")
        others = [part for part in (chart, tag) if re.match(r"\d+\.\d+\.\d+", part) and part != version]
        if others:
            todo = f"helm upgrade {metadata['name']} deploy/charts/tenure -n {metadata['namespace']} {REUSE_VALUES}"
            message = f"the chart is {chart or 'unknown'}, its image {tag or 'a digest'}, and doctor {version}"
            found.append(at.advice(message, f"{todo}, from the sources of one version"))
        else:
            found.append(at.ok(f"version {chart}"))
    return found


async def read_aws_auth(client: KubeClient) -> frozenset[str] | None:
    """ARNs of the roles that the ConfigMap kube-system/aws-auth maps to nodes; None if it cannot be read."""
    response = await client.send("GET", "/api/v1/namespaces/kube-system/configmaps/aws-auth")
    if response.code == 404:
        return frozenset()
    if not response.is_success:
        return None
    try:
        roles = yaml.safe_load((response.parse_json().get("data") or {}).get("mapRoles") or "[]")
        return frozenset(str(one["rolearn"]) for one in roles if NODES_GROUP in (one.get("groups") or ()))
    except (yaml.YAMLError, TypeError, KeyError, AttributeError):
        return None


async def check_rights(
    client: KubeClient, rights: Sequence[AccessRight], *, account: tuple[str, str], todo: str
) -> list[Finding]:
    """Check permissions of the worker's service account, or of the caller if that review is forbidden.

    `account`: namespace and name of the service account. `todo`: how to grant permissions.
    """
    user = f"system:serviceaccount:{account[0]}:{account[1]}"
    try:
        denied = await _find_denied(client, rights, user)
    except Forbidden:
        user, denied = "these credentials", await _find_denied(client, rights, "")
    if denied:
        return [Subject(RIGHTS, user).problem(f"may not {one.describe()}", todo) for one in denied]
    return [Subject(RIGHTS, user).ok(f"has all {len(rights)} permissions in deploy/rbac")]


async def check_objects(
    cluster: KubeAdapters, lease: str, now: datetime, *, cluster_name: str
) -> tuple[list[Finding], list[NodePool], list[EC2NodeClass]]:
    """Findings about NodePools, EC2NodeClasses and other active controllers, and the objects themselves.

    NodePools of other providers, such as those of EKS Auto Mode, are omitted. `cluster_name`: in EKS."""
    every, classes = await cluster.pools.list(), await cluster.node_classes.list()
    pools = [one for one in every if is_ours(one.spec.template.spec.node_class_ref.model_dump())]
    names = {one.name for one in classes}
    found = [one for pool in pools for one in _of_pool(pool, names)]
    for node_class in classes:
        found += _check_conditions(Subject(AREA, f"EC2NodeClass {node_class.name}"), "ec2nodeclass", node_class)
    if not pools:
        found.append(
            Subject(AREA, "NodePools").advice("no NodePool has an EC2NodeClass", _create_pool(names, cluster_name))
        )
    holder = await cluster.leases.find_holder("", lease, now=now) if lease else ""
    if holder:
        todo = (
            "`tenure adopt` takes over from Karpenter; stop another controller before the worker starts, "
            f"because two would manage the same nodes (kubectl get leases -A --field-selector metadata.name={lease})"
        )
        found.append(Subject(AREA, "another controller").problem(f"{holder} is active", todo))
    return found, pools, list(classes)


def _create_pool(classes: set[str], cluster_name: str) -> str:
    """With the example of an EC2NodeClass only where there is none, so that it replaces none."""
    if not classes:
        return apply_examples(cluster_name)
    apply = "kubectl apply -f examples/nodepool.yaml"
    return apply if "default" in classes else f"{apply}, with spec.template.spec.nodeClassRef.name {min(classes)}"


def _of_pool(pool: NodePool, classes: Iterable[str]) -> list[Finding]:
    at, name = Subject(AREA, f"NodePool {pool.name}"), pool.spec.template.spec.node_class_ref.name
    if name not in classes:
        todo = f"create it, or kubectl edit nodepool {pool.name}, and correct spec.template.spec.nodeClassRef.name"
        return [at.problem(f"its EC2NodeClass {name} does not exist", todo)]
    return _check_conditions(at, "nodepool", pool)


def _check_conditions(at: Subject, kind: str, owner: NodePool | EC2NodeClass) -> list[Finding]:
    """`kind`: as kubectl names it."""
    conditions = {one.type: one for one in owner.status.conditions}
    ready = conditions.get(labels.READY)
    if ready is None:
        return [at.advice("no Ready condition yet", START_WORKER)]
    if ready.is_true:
        return [at.ok("Ready")]
    descriptions = [
        _describe_condition(one) for one in conditions.values() if one.type != labels.READY and not one.is_true
    ]
    message = f"not Ready: {'; '.join(descriptions) or _describe_condition(ready)}"
    return [at.problem(message, f"kubectl edit {kind} {owner.name}, and correct the fields that the conditions name")]


def _describe_condition(condition: Condition) -> str:
    return f"{condition.type} {condition.reason} {condition.message}".strip()


async def _find_denied(client: KubeClient, rights: Sequence[AccessRight], user: str) -> list[AccessRight]:
    semaphore = asyncio.Semaphore(_MAX_CONCURRENT_REVIEWS)

    async def check_allowed(right: AccessRight) -> bool:
        async with semaphore:
            return await _review_access(client, right, user)

    results = await asyncio.gather(*(check_allowed(one) for one in rights))
    return [right for right, yes in zip(rights, results, strict=True) if not yes]


async def _review_access(client: KubeClient, right: AccessRight, user: str) -> bool:
    resource, _, sub = right.resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": sub,
        "verb": right.verb,
        "namespace": right.namespace,
        "name": right.name,
    }
    kind = "SubjectAccessReview" if user else "SelfSubjectAccessReview"
    spec: dict[str, Any] = {"resourceAttributes": attributes} | ({"user": user} if user else {})
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    response = await client.request("POST", f"{_REVIEWS}/{kind.lower()}s", body=body)
    return bool((response.get("status") or {}).get("allowed"))


def rights_of(documents: Iterable[Mapping[str, Any]]) -> list[AccessRight]:
    """Permissions of the worker in the shipped ClusterRoles and Roles, without the roles for users."""
    return [
        AccessRight(
            group=group,
            resource=resource,
            verb=verb,
            namespace=document["metadata"].get("namespace", ""),
            name=(rule.get("resourceNames") or [""])[0],
        )
        for document in documents
        if document.get("kind") in ("ClusterRole", "Role") and not _is_for_people(document)
        for rule in document.get("rules", ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def _is_for_people(document: Mapping[str, Any]) -> bool:
    role_labels = document["metadata"].get("labels") or {}
    return any(key.startswith("rbac.authorization.k8s.io/aggregate-to-") for key in role_labels)
