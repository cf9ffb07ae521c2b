"""`tenure adopt --dry-run`: read the cluster once, evaluate it, and report as a table or JSON. Writes nothing."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import tenure.aws.adapters
import tenure.kube.adapters.build
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.feature_gates import FeatureGate
from tenure.aws.nodeclass.instance_profiles import ProfileInUse
from tenure.aws.nodeclass.status import AwsNodeClasses
from tenure.cli.adopt.checks import check_adopted_objects, check_controllers, check_nodeclasses, check_nodes
from tenure.cli.adopt.karpenter_settings import (
    SettingComparison,
    check_own_settings,
    check_settings,
    compare_settings,
    format_flags,
    inherit_settings,
)
from tenure.cli.console import PrintableTable, format_findings, make_table
from tenure.cli.disruption.plan import format_status
from tenure.cli.exit_codes import UsageError
from tenure.cli.nodes.why import as_json as disruption_json
from tenure.cli.simulate.results import Simulation, build_simulation, format_simulation
from tenure.cli.simulate.results import as_json as plan_json
from tenure.controller.adoption_preview import AdoptedNodeClaim, AdoptionPreview, AdoptionPreviewer
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.cluster import ObservedLease, dns_address
from tenure.kube.adapters.workloads import DeploymentState, KubeDeployments
from tenure.kube.client import resources
from tenure.kube.doctor import AREA as KINDS
from tenure.kube.doctor import check_kinds, check_version
from tenure.model.errors import Fault, Finding, Forbidden, Subject, has_problem
from tenure.settings import Settings, SettingsError, load
from tenure.worker.settings import aws_settings, host_settings

KARPENTER: Final = "karpenter"
TENURE: Final = "tenure"
_OWN: Final = resources.LIFECYCLE_POLICIES.plural
"""A cluster without Tenure's own kind can still be evaluated."""


@dataclass(frozen=True)
class DeploymentReference:
    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"

    def of(self, found: DeploymentState | None) -> "DeploymentReference":
        """The reference of the Deployment that was found, else this one."""
        return DeploymentReference(found.namespace, found.name) if found else self


@dataclass(frozen=True)
class AdoptionReport:
    settings: Settings
    findings: tuple[Finding, ...]
    leases: tuple[ObservedLease, ...] = ()
    karpenter: DeploymentState | None = None
    tenure: DeploymentState | None = None
    setting_comparisons: tuple[SettingComparison, ...] = ()
    preview: AdoptionPreview | None = None
    profiles: Mapping[str, ProfileInUse | str] | None = None

    @property
    def is_ready(self) -> bool:
        return not has_problem(self.findings)


def resolve_settings(flags: Sequence[str], found: Mapping[str, str]) -> Settings:
    """Flags, then the environment, then the Deployments. Raises `UsageError`."""
    inherited = {name: value for name, value in found.items() if name not in os.environ}
    try:
        return load([*format_flags(inherited), *flags])
    except SettingsError as error:
        raise UsageError(f"adopt: {error}") from error


async def connect_cluster(flags: Sequence[str]) -> KubeAdapters:
    """The cluster of these flags or of the environment. Raises `UsageError`."""
    settings = resolve_settings(flags, {"CLUSTER_NAME": "unknown"})
    try:
        return await tenure.kube.adapters.build.connect_all(settings.kubeconfig)
    except Fault as fault:
        raise UsageError(f"adopt: {fault.message}; set KUBECONFIG") from fault


async def find_deployment(
    deployments: KubeDeployments, reference: DeploymentReference, label: str
) -> DeploymentState | None:
    """By name; else the only one with the label of its chart, if the user may list Deployments."""
    if deployment := await deployments.get(reference.namespace, reference.name):
        return deployment
    try:
        candidates = await deployments.list_by_name_label(label) if reference.name == label else ()
    except Forbidden:
        return None
    return candidates[0] if len(candidates) == 1 else None


async def inspect_controllers(
    cluster: KubeAdapters, flags: Sequence[str], karpenter: DeploymentReference, tenure: DeploymentReference
) -> AdoptionReport:
    """Controllers and settings, only from the API server.

    Raises `UsageError` if it does not respond, or without CLUSTER_NAME."""
    deployments, now = KubeDeployments(cluster.client), datetime.now(UTC)
    try:
        karpenter_deployment = await find_deployment(deployments, karpenter, KARPENTER)
        tenure_deployment = await find_deployment(deployments, tenure, TENURE)
        settings = resolve_settings(flags, inherit_settings(karpenter_deployment, tenure_deployment))
        leases = tuple(await cluster.leases.list_leases("", settings.leader_election_name))
        kinds = [
            *await check_version(cluster.client, settings.cluster_name, settings.aws_region),
            *await check_kinds(cluster.client),
        ]
    except Fault as fault:
        raise UsageError(
            f"adopt: {fault.message}; check that KUBECONFIG names the cluster and a user with access"
        ) from fault
    rows = tuple(compare_settings(karpenter_deployment, tenure_deployment)) if karpenter_deployment else ()
    found = [
        *check_controllers(leases, karpenter_deployment, karpenter.path, now),
        *kinds,
        *(check_settings(list(rows)) if rows else ()),
        *(check_own_settings(karpenter_deployment, settings) if karpenter_deployment else ()),
    ]
    return AdoptionReport(settings, tuple(found), leases, karpenter_deployment, tenure_deployment, rows)


async def preview_adoption(
    cluster: KubeAdapters, flags: Sequence[str], karpenter: DeploymentReference, tenure: DeploymentReference
) -> AdoptionReport:
    """Adds the actions that a worker would take. Reads only. Raises `UsageError` as `inspect_controllers` does."""
    known = await inspect_controllers(cluster, flags, karpenter, tenure)
    if any(one.area == KINDS and one.level == "problem" and _OWN not in one.subject for one in known.findings):
        return known
    try:
        preview, profiles = await compute_preview(cluster, known.settings)
    except Fault as fault:
        finding = Subject("nodes", "preview").problem(fault.message, "run `tenure doctor`, then try again")
        return replace(known, findings=(*known.findings, finding))
    static = known.settings.feature_gates[FeatureGate.STATIC_CAPACITY]
    more = [
        *check_adopted_objects(preview, static),
        *check_nodeclasses(preview.classes, profiles, preview.objects.get(resources.EC2_NODE_CLASSES.plural, ())),
        *check_nodes(preview),
    ]
    return replace(known, findings=(*known.findings, *more), preview=preview, profiles=profiles)


async def compute_preview(
    cluster: KubeAdapters, settings: Settings
) -> tuple[AdoptionPreview, dict[str, ProfileInUse | str]]:
    """Raises `Fault`."""
    dns = await dns_address(cluster.client)
    cloud = tenure.aws.adapters.build(aws_settings(settings, cluster_dns=dns))
    shadow = AdoptionPreviewer(
        settings=host_settings(settings),
        kube=cluster,
        offerings=cloud.offerings,
        instances=cloud.instances,
        resolver=cloud.resolver,
        now=lambda: datetime.now(UTC),
    )
    try:
        preview = await shadow.preview()
        raw = [EC2NodeClass.from_object(one) for one in preview.objects[resources.EC2_NODE_CLASSES.plural]]
        found = await asyncio.gather(*(_resolve_profile(cloud.resolver, one) for one in raw))
        return preview, {one.name: profile for one, profile in zip(raw, found, strict=True)}
    finally:
        cloud.close()


async def _resolve_profile(resolver: AwsNodeClasses, node_class: EC2NodeClass) -> ProfileInUse | str:
    try:
        return await resolver.profile_of(node_class)
    except Fault as fault:
        return fault.message


def as_json(found: AdoptionReport) -> dict[str, Any]:
    preview = found.preview
    return {
        "ready": found.is_ready,
        "cluster": found.settings.cluster_name,
        "leases": [one.model_dump(mode="json") for one in found.leases],
        "karpenter": _deployment_json(found.karpenter),
        "tenure": _deployment_json(found.tenure),
        "settings": [vars(one) for one in found.setting_comparisons],
        "objects": {kind: len(objects) for kind, objects in preview.objects.items()} if preview else {},
        "instanceProfiles": {
            name: profile.model_dump() if isinstance(profile, ProfileInUse) else {"unknown": profile}
            for name, profile in (found.profiles or {}).items()
        },
        "nodeClaims": [_nodeclaim_json(one) for one in preview.claims] if preview else [],
        "wouldLaunch": plan_json(_to_simulation(preview)) if preview and preview.plan else None,
        "wouldDisrupt": disruption_json(preview.disruption_status) if preview else None,
        "findings": [one.model_dump() for one in found.findings],
    }


def format_report(found: AdoptionReport) -> list[object]:
    """Problems last, so that they are right above the prompt."""
    parts: list[object] = [_settings_table(found.setting_comparisons)] if found.setting_comparisons else []
    if (preview := found.preview) is not None:
        parts += [_nodeclaims_table(preview.claims)] if preview.claims else []
        unknown = f"unknown: {preview.disruption_status.blocked}"
        parts.append("Planned launches:")
        parts += format_simulation(_to_simulation(preview)) if preview.plan else [unknown]
        parts += ["Planned disruption:", *format_status(preview.disruption_status)]
    return [*parts, *format_findings(found.findings), format_conclusion(found)]


def format_conclusion(found: AdoptionReport) -> str:
    if found.is_ready:
        return "Ready: `tenure adopt` takes over."
    return "Not ready: fix the problems first."


def _to_simulation(preview: AdoptionPreview) -> Simulation:
    assert preview.plan is not None
    return build_simulation(preview.plan, preview.pods, preview.types, preview.plan.seconds)


def _nodeclaim_json(one: AdoptedNodeClaim) -> dict[str, Any]:
    return {
        "nodeClaim": one.claim.name,
        "nodePool": one.claim.pool,
        "node": one.node.name if one.node else one.claim.node_name,
        "instance": one.instance.instance_id if one.instance else "",
        "instanceState": one.instance.state if one.instance else "",
        "foundByTags": one.tagged,
        "phase": one.phase.value,
        "drift": {"reason": one.drift.reason, "message": one.drift.message} if one.drift else None,
        "driftWithKarpenter": one.claim.drifted,
        "judged": one.is_evaluated,
    }


def _nodeclaims_table(claims: Sequence[AdoptedNodeClaim]) -> PrintableTable:
    columns = ("NodeClaim", "NodePool", "node", "instance", "first phase", "drift with Karpenter", "with Tenure")
    rows = (
        (
            one.claim.name,
            one.claim.pool or "-",
            one.node.name if one.node else "-",
            one.instance.instance_id if one.instance else "-",
            one.phase.value,
            one.claim.drifted or "-",
            one.drift.reason if one.drift else "-" if one.is_evaluated else "unknown",
        )
        for one in claims
    )
    return make_table(*columns, rows=rows)


def _settings_table(rows: Sequence[SettingComparison]) -> PrintableTable:
    columns = ("Karpenter's variable", "its value", "Tenure's", "", "to do")
    cells = ((one.variable, one.karpenter, one.tenure or "-", one.outcome, one.todo) for one in rows)
    return make_table(*columns, rows=cells)


def _deployment_json(one: DeploymentState | None) -> dict[str, Any] | None:
    return one.model_dump(include={"namespace", "name", "replicas", "running", "image"}) if one else None
