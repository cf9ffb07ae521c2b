"""Permissions of the worker: within those of Karpenter, except for rules that document the reason."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy.resources import OPTIONAL_RBAC, rbac_documents
from tenure.apis.feature_gates import FeatureGate
from tenure.controller.watched_cluster import OPTIONAL_KINDS, WATCHED
from tenure.model.hooks import NAMESPACE
from tenure.settings import load
from tests.support.paths import ROOT

FOLDER = ROOT / "deploy" / "rbac"
READ = frozenset({"get", "list", "watch"})
Right = tuple[str, str, str]

# Karpenter's ClusterRoles by group, resource and verbs, without the permissions of gates that Tenure does not have.
KARPENTER_VERBS = {
    ("karpenter.sh", "nodepools"): READ | {"update", "patch"},
    ("karpenter.sh", "nodepools/status"): READ | {"update", "patch"},
    ("karpenter.sh", "nodeclaims"): READ | {"create", "delete", "update", "patch"},
    ("karpenter.sh", "nodeclaims/status"): READ | {"create", "delete", "update", "patch"},
    ("karpenter.sh", "nodeoverlays"): READ,
    ("karpenter.sh", "nodeoverlays/status"): frozenset({"update", "patch"}),
    ("autoscaling.x-k8s.io", "capacitybuffers"): READ,
    ("autoscaling.x-k8s.io", "capacitybuffers/status"): frozenset({"update", "patch"}),
    ("", "podtemplates"): READ,
    ("coordination.k8s.io", "leases"): frozenset({"create", "update", "patch"}),
    ("karpenter.k8s.aws", "ec2nodeclasses"): READ | {"update", "patch"},
    ("karpenter.k8s.aws", "ec2nodeclasses/status"): frozenset({"update", "patch"}),
    ("", "pods"): READ | {"delete"},
    ("", "pods/eviction"): frozenset({"create"}),
    ("", "nodes"): READ | {"patch", "delete", "update"},
    ("", "namespaces"): READ,
    ("", "persistentvolumes"): READ,
    ("", "persistentvolumeclaims"): READ,
    ("", "events"): READ | {"create", "patch"},
    ("storage.k8s.io", "storageclasses"): READ,
    ("storage.k8s.io", "csinodes"): READ,
    ("storage.k8s.io", "volumeattachments"): READ,
    ("apps", "daemonsets"): READ,
    ("apps", "deployments"): READ,
    ("apps", "replicasets"): READ,
    ("apps", "statefulsets"): READ,
    ("policy", "poddisruptionbudgets"): READ,
    ("resource.k8s.io", "deviceclasses"): READ,
    ("resource.k8s.io", "resourceclaims"): READ,
    ("resource.k8s.io", "resourceslices"): READ,
    ("", "services"): frozenset({"get"}),
}


_ADMISSION = (("", "limitranges"), ("node.k8s.io", "runtimeclasses"))
"""Kinds that change the pods of a DaemonSet's template."""


def documents(*kinds: str) -> list[dict[str, Any]]:
    found = [one for file in sorted(FOLDER.glob("*.yaml")) for one in yaml.safe_load_all(file.read_text()) if one]
    return [one for one in found if one["kind"] in kinds]


OPTIONAL: dict[str, set[Right]] = {
    "eviction_requests": {
        *(("lifecycle.k8s.io", "evictionrequests", verb) for verb in ("get", "create", "patch")),
        ("lifecycle.k8s.io", "evictions", "list"),
    },
    "nominate_pods": {("", "pods/status", "patch")},
    "surge_single_replicas": {("apps", "deployments", "patch")},
    FeatureGate.POD_DELETION_COST: {("", "pods", "patch")},
    "scheduler_config": {("", kind, verb) for kind in ("services", "replicationcontrollers") for verb in READ},
}
"""The additional permissions of each setting and feature gate."""
GRANTED_BY_KARPENTER = {FeatureGate.POD_DELETION_COST}


def rights_of(role: dict[str, Any]) -> Iterator[Right]:
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from ((group, resource, verb) for verb in rule["verbs"])


def worker_rights() -> set[Right]:
    roles = [role for role in documents("ClusterRole", "Role") if role["metadata"]["name"] != "tenure-admin"]
    return {right for role in roles for right in rights_of(role)}


def test_only_documented_rules_exceed_karpenter_permissions() -> None:
    beyond = {
        (group, name, verb)
        for group, name, verb in worker_rights()
        if verb not in KARPENTER_VERBS.get((group, name), ())
    }
    leases = {("coordination.k8s.io", "leases", verb) for verb in ("get", "list", "delete")}
    policies = {("tenure.sh", "lifecyclepolicies", verb) for verb in READ}
    policies |= {("tenure.sh", "lifecyclepolicies/status", verb) for verb in ("update", "patch")}
    jobs = {("batch", "jobs", verb) for verb in ("get", "create")}
    admission = {(group, name, verb) for group, name in _ADMISSION for verb in READ}
    templates = {("resource.k8s.io", "resourceclaimtemplates", verb) for verb in READ}
    assert (
        beyond
        == leases
        | policies
        | {("", "namespaces", "patch"), ("", "nodes/status", "patch")}
        | jobs
        | admission
        | templates
    )
    comment_count = sum(file.read_text().count("# BEYOND: ") for file in FOLDER.glob("*.yaml"))
    assert comment_count == 8


def test_optional_permissions_are_not_in_base_roles() -> None:
    assert set(OPTIONAL_RBAC) == set(OPTIONAL)
    assert all(rights - worker_rights() for rights in OPTIONAL.values())
    assert OPTIONAL["scheduler_config"] & worker_rights() == {("", "services", "get")}, "only for kube-dns, by a Role"
    settings = load(["--cluster-name=demo"])
    assert not [name for name in OPTIONAL_RBAC if settings.is_on(name)]


@pytest.mark.parametrize("setting", OPTIONAL)
def test_setting_adds_its_permissions_for_the_service_account(setting: str) -> None:
    always = rbac_documents()
    role, binding = [one for one in rbac_documents([setting]) if one not in always]
    assert (role["kind"], binding["kind"]) == ("ClusterRole", "ClusterRoleBinding")
    assert set(rights_of(role)) == OPTIONAL[setting]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    (account,) = documents("ServiceAccount")
    assert [(one["namespace"], one["name"]) for one in binding["subjects"]] == [
        (account["metadata"]["namespace"], account["metadata"]["name"])
    ]
    text = OPTIONAL_RBAC[setting].read_text()
    switch = setting.example if isinstance(setting, FeatureGate) else setting.upper()
    assert text.startswith((f"# Only with {switch}.", f"# Only with {switch}=true."))
    assert text.count("# BEYOND: ") == (0 if setting in GRANTED_BY_KARPENTER else 1)


def test_only_worker_namespace_may_be_patched() -> None:
    patching = [
        (role["kind"], role["metadata"]["namespace"], rule["resourceNames"])
        for role in documents("ClusterRole", "Role")
        for rule in role["rules"]
        if "namespaces" in rule["resources"] and "patch" in rule["verbs"]
    ]
    assert patching == [("Role", "tenure", ["tenure"])]


def test_jobs_may_be_created_in_hook_namespace_only() -> None:
    """A pod may use any service account of its namespace, so the worker's must not be there."""
    making = [
        (role["kind"], role["metadata"].get("namespace"))
        for role in documents("ClusterRole", "Role")
        if ("batch", "jobs", "create") in set(rights_of(role))
    ]
    assert making == [("Role", NAMESPACE)]
    assert [one["metadata"]["namespace"] for one in documents("ServiceAccount")] == ["tenure"]
    assert NAMESPACE in [one["metadata"]["name"] for one in documents("Namespace")]


def test_leases_may_be_deleted_in_node_lease_namespace_only() -> None:
    deleting = [
        (role["kind"], role["metadata"].get("namespace"))
        for role in documents("ClusterRole", "Role")
        if ("coordination.k8s.io", "leases", "delete") in set(rights_of(role))
    ]
    assert deleting == [("Role", "kube-node-lease")]


def test_no_permission_is_a_wildcard_or_reads_secrets() -> None:
    rights = {right for role in documents("ClusterRole", "Role") for right in rights_of(role)}
    assert not [right for right in rights if "*" in right]
    assert not [right for right in rights if right[1] in ("secrets", "configmaps")]


def test_every_role_is_bound_to_the_service_account() -> None:
    (account,) = documents("ServiceAccount")
    subject = {
        "kind": "ServiceAccount",
        "name": account["metadata"]["name"],
        "namespace": account["metadata"]["namespace"],
    }
    bindings = documents("ClusterRoleBinding", "RoleBinding")
    assert all(binding["subjects"] == [subject] for binding in bindings)
    bound = {(one["roleRef"]["kind"], one["roleRef"]["name"], one["metadata"].get("namespace")) for one in bindings}
    roles = documents("ClusterRole", "Role")
    own = {(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")) for one in roles}
    assert own - bound == {("ClusterRole", "tenure-admin", None)}
    assert bound <= own


def test_every_watched_kind_may_be_listed_and_watched() -> None:
    rights = worker_rights()
    groups = {one.plural: one.api_version.rpartition("/")[0] for one in (*WATCHED, *OPTIONAL_KINDS)}
    missing = {(name, verb) for name, group in groups.items() for verb in ("list", "watch")} - {
        (name, verb) for group, name, verb in rights if groups.get(name) == group
    }
    assert not missing
