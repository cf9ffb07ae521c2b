"""`tenure adopt --dry-run`: everything read once, judged, and shown to people or scripts. Nothing is written."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from rich.console import RenderableType
from rich.table import Table

import tenure.aws.adapters
import tenure.kube.adapters.build
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.nodeclass.instance_profiles import ProfileInUse
from tenure.aws.nodeclass.status import AwsNodeClasses
from tenure.cli.adopt.checks import of_classes, of_controller, of_nodes, of_objects
from tenure.cli.adopt.karpenter_settings import Row, arguments, compared, findings_of, inherited
from tenure.cli.console import findings_table, summary
from tenure.cli.disruption.plan import as_table as shown_table
from tenure.cli.exit_codes import Refused
from tenure.cli.nodes.why import as_json as shown_json
from tenure.cli.simulate.results import Simulation, simulation
from tenure.cli.simulate.results import as_json as plan_json
from tenure.cli.simulate.results import as_table as plan_table
from tenure.controller import settings
from tenure.controller.adoption_preview import Foreseen, Shadow, Taken
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.cluster import LeaseSeen, dns_address
from tenure.kube.adapters.workloads import Deployed, KubeDeployments
from tenure.kube.client import resources
from tenure.kube.doctor import AREA as KINDS
from tenure.kube.doctor import check_kinds, check_version
from tenure.model.errors import Fault, Finding, has_problem, problem
from tenure.settings import Settings, SettingsError, load
from worker import aws_settings, host_settings

KARPENTER: Final = "karpenter"
_OWN: Final = resources.LIFECYCLE_POLICIES.plural
"""Tenure's own kind: a cluster that has none can be looked at all the same."""


@dataclass(frozen=True)
class Place:
    """Where a Deployment is."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Report:
    settings: Settings
    findings: tuple[Finding, ...]
    leases: tuple[LeaseSeen, ...] = ()
    karpenter: Deployed | None = None
    tenure: Deployed | None = None
    rows: tuple[Row, ...] = ()
    foreseen: Foreseen | None = None
    profiles: Mapping[str, ProfileInUse | str] | None = None

    @property
    def ready(self) -> bool:
        return not has_problem(self.findings)


def settings_of(given: Sequence[str], found: Mapping[str, str]) -> Settings:
    """Flags, then the environment, then what the Deployments say. Raises `Refused`."""
    unsaid = {name: value for name, value in found.items() if name not in os.environ}
    try:
        return load([*arguments(unsaid), *given])
    except SettingsError as error:
        raise Refused(f"adopt: {error}") from error


async def connected(given: Sequence[str]) -> KubeAdapters:
    """The cluster that these flags or the environment name. Raises `Refused`."""
    settings = settings_of(given, {"CLUSTER_NAME": "unknown"})
    try:
        return await tenure.kube.adapters.build.connect_all(settings.kubeconfig)
    except Fault as fault:
        raise Refused(f"adopt: {fault.message}; set KUBECONFIG") from fault


async def find(deployments: KubeDeployments, place: Place, label: str) -> Deployed | None:
    """Where it is said to be; else the only one that a chart has labelled so."""
    if there := await deployments.get(place.namespace, place.name):
        return there
    labelled = await deployments.called(label) if place.name == label else ()
    return labelled[0] if len(labelled) == 1 else None


async def look_around(cluster: KubeAdapters, given: Sequence[str], karpenter: Place, tenure: Place) -> Report:
    """Who is at work, and what the settings are: the API server alone. Raises `Refused` where it does not answer, or
    CLUSTER_NAME is nowhere said."""
    deployments, now = KubeDeployments(cluster.client), datetime.now(UTC)
    try:
        theirs = await find(deployments, karpenter, KARPENTER)
        ours = await deployments.get(tenure.namespace, tenure.name)
        settings = settings_of(given, inherited(theirs, ours))
        leases = tuple(await cluster.leases.seen("", settings.leader_election_name))
        kinds = [*await check_version(cluster.client), *await check_kinds(cluster.client)]
    except Fault as fault:
        raise Refused(f"adopt: {fault.message}; does KUBECONFIG name the cluster, and one who may?") from fault
    rows = tuple(compared(theirs, ours)) if theirs else ()
    found = [*of_controller(leases, theirs, karpenter.path, now), *kinds, *(findings_of(list(rows)) if rows else ())]
    return Report(settings, tuple(found), leases, theirs, ours, rows)


async def report(cluster: KubeAdapters, given: Sequence[str], karpenter: Place, tenure: Place) -> Report:
    """All of it, with what a worker would do. Reads alone. Raises `Refused` as `look_around` does."""
    known = await look_around(cluster, given, karpenter, tenure)
    if any(one.area == KINDS and one.level == "problem" and _OWN not in one.subject for one in known.findings):
        return known
    try:
        foreseen, profiles = await foresee(cluster, known.settings)
    except Fault as fault:
        said = problem("nodes", "shadow", fault.message, "see `tenure doctor`, and look again")
        return replace(known, findings=(*known.findings, said))
    static = known.settings.feature_gates[settings.STATIC_CAPACITY]
    more = [
        *of_objects(foreseen, static),
        *of_classes(foreseen.classes, profiles, foreseen.objects.get(resources.EC2_NODE_CLASSES.plural, ())),
        *of_nodes(foreseen),
    ]
    return replace(known, findings=(*known.findings, *more), foreseen=foreseen, profiles=profiles)


async def foresee(cluster: KubeAdapters, settings: Settings) -> tuple[Foreseen, dict[str, ProfileInUse | str]]:
    """Raises model.faults."""
    dns = await dns_address(cluster.client)
    cloud = tenure.aws.adapters.build(aws_settings(settings, cluster_dns=dns))
    shadow = Shadow(
        settings=host_settings(settings),
        kube=cluster,
        offerings=cloud.offerings,
        instances=cloud.instances,
        resolver=cloud.resolver,
        now=lambda: datetime.now(UTC),
    )
    try:
        foreseen = await shadow.look()
        raw = [EC2NodeClass.from_object(one) for one in foreseen.objects[resources.EC2_NODE_CLASSES.plural]]
        found = await asyncio.gather(*(_profile(cloud.resolver, one) for one in raw))
        return foreseen, {one.name: profile for one, profile in zip(raw, found, strict=True)}
    finally:
        cloud.close()


async def _profile(resolver: AwsNodeClasses, node_class: EC2NodeClass) -> ProfileInUse | str:
    try:
        return await resolver.profile_of(node_class)
    except Fault as fault:
        return fault.message


# --- written ---


def as_json(found: Report) -> dict[str, Any]:
    foreseen = found.foreseen
    return {
        "ready": found.ready,
        "cluster": found.settings.cluster_name,
        "leases": [one.model_dump(mode="json") for one in found.leases],
        "karpenter": _deployment(found.karpenter),
        "tenure": _deployment(found.tenure),
        "settings": [vars(one) for one in found.rows],
        "objects": {kind: len(objects) for kind, objects in foreseen.objects.items()} if foreseen else {},
        "instanceProfiles": {
            name: profile.model_dump() if isinstance(profile, ProfileInUse) else {"unknown": profile}
            for name, profile in (found.profiles or {}).items()
        },
        "nodeClaims": [_claim(one) for one in foreseen.claims] if foreseen else [],
        "wouldLaunch": plan_json(_simulation(foreseen)) if foreseen and foreseen.plan else None,
        "wouldDisrupt": shown_json(foreseen.shown) if foreseen else None,
        "findings": [one.model_dump() for one in found.findings],
    }


def as_tables(found: Report) -> list[RenderableType]:
    """Worst last, so that it stands above the prompt."""
    parts: list[RenderableType] = []
    if found.rows:
        parts.append(_settings_table(found.rows))
    foreseen = found.foreseen
    if foreseen is not None:
        parts += [_claims_table(foreseen.claims)] if foreseen.claims else []
        parts.append("What would be launched first:")
        parts.append(plan_table(_simulation(foreseen)) if foreseen.plan else f"not known: {foreseen.shown.blocked}")
        parts += ["What would be disrupted first:", shown_table(foreseen.shown)]
    parts += [findings_table(found.findings), summary(found.findings), verdict(found)]
    return parts


def verdict(found: Report) -> str:
    if found.ready:
        return "Nothing stands in the way: `tenure adopt` takes over."
    return "Something stands in the way: what is called a problem is to be mended first."


def _simulation(foreseen: Foreseen) -> Simulation:
    assert foreseen.plan is not None
    return simulation(foreseen.plan, foreseen.pods, foreseen.types, foreseen.plan.seconds)


def _claim(one: Taken) -> dict[str, Any]:
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
        "judged": one.judged,
    }


def _claims_table(claims: Sequence[Taken]) -> Table:
    table = Table("NodeClaim", "NodePool", "node", "instance", "begins as", "drift with Karpenter", "with Tenure")
    for one in claims:
        instance = one.instance.instance_id if one.instance else "-"
        drift = one.drift.reason if one.drift else "-" if one.judged else "not known"
        node = one.node.name if one.node else "-"
        table.add_row(
            one.claim.name, one.claim.pool or "-", node, instance, one.phase.value, one.claim.drifted or "-", drift
        )
    return table


def _settings_table(rows: Sequence[Row]) -> Table:
    table = Table("Karpenter's variable", "its value", "Tenure's", "", "to do")
    for one in rows:
        table.add_row(one.variable, one.karpenter, one.tenure or "-", one.verdict, one.todo)
    return table


def _deployment(one: Deployed | None) -> dict[str, Any] | None:
    return one.model_dump(include={"namespace", "name", "replicas", "running", "image"}) if one else None
