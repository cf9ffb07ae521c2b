"""Takeover of a cluster from Karpenter, and the way back. Every step is safe to repeat.

The next run continues an interrupted one: replica counts are annotations of the Deployments, a pause has an end, and
everything else is read again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from temporalio.client import Client
from temporalio.service import RPCError

from tenure.apis import labels
from tenure.apis.hash import HASH_VERSION
from tenure.cli.adopt.preview import DeploymentReference
from tenure.cli.disruption.pause import current_user
from tenure.cli.exit_codes import CommandFailed
from tenure.cli.nodes.workflows import NodeClaimSummary, NodeClaimVisibility
from tenure.controller.resync import needs_workflow
from tenure.kube.adapters.build import KubeAdapters
from tenure.kube.adapters.workloads import KubeDeployments
from tenure.kube.client.objects import Objects
from tenure.kube.client.resources import NAMESPACES, NODE_CLAIMS
from tenure.kube.facts.objects import is_ours, nodeclaim_fact
from tenure.kube.leader_election import LEADER_LEASE
from tenure.model.errors import Fault, TryLater
from tenure.model.facts import NodeClaimFact
from tenure.model.nodeclaim.state import TERMINATING_PHASES, Phase
from tenure.model.signals import Pause
from tenure.policy.lifecycle.adoption import decide_first_phase, decide_taken_over
from tenure.policy.lifecycle.pauses import pause_from_annotation, write_pause
from tenure.progress import Progress
from tenure.settings import Settings
from workflows import ids

POLL_INTERVAL_SECONDS: Final = 1.0
REPLICAS: Final = 2
"""The default of both charts, for a Deployment without a recorded count."""
REASON: Final = "tenure adopt"
_LONGER: Final = timedelta(minutes=10)
"""Margin of the pause over the time limit of a run."""
_NAMED: Final = 3


@dataclass(frozen=True)
class HandoverResult:
    message: str
    nodeclaims: int = 0
    unfinished: tuple[str, ...] = field(default=())
    """Work that continues under the other controller."""


class Handover:
    """`temporal` is None if it does not respond, which does not prevent handing back."""

    def __init__(
        self,
        *,
        cluster: KubeAdapters,
        temporal: Client | None,
        settings: Settings,
        karpenter: DeploymentReference,
        tenure: DeploymentReference,
        progress: Progress,
        deadline: float,
        settle: float,
    ) -> None:
        """`deadline` limits all waits together; it and `settle` are in seconds."""
        self._cluster, self._temporal, self._settings = cluster, temporal, settings
        self._progress = progress
        self._karpenter, self._tenure, self._settle = karpenter, tenure, settle
        self._deployments = KubeDeployments(cluster.client)
        self._claims = Objects(cluster.client, NODE_CLAIMS)
        self._ends = time.monotonic() + deadline
        self._paused_until = datetime.now(UTC) + timedelta(seconds=deadline) + _LONGER

    async def take_over(self) -> HandoverResult:
        """Stop Karpenter, let a worker take over its NodeClaims, and pause disruption until that is verified.

        Raises `CommandFailed` with the next step."""
        await self._pause_cluster()
        if await self._deployments.stop(self._karpenter.namespace, self._karpenter.name):
            self._report_progress(f"Deployment {self._karpenter.path} is scaled to zero")
        todo = f"find the running process: {_how_to_find_pods(self._karpenter)}"
        await self._wait_until(self._why_still_led, todo)
        await self._wait_until(lambda: self._why_still_running(self._karpenter), todo)
        self._report_progress("Karpenter's pods are gone, and no process renews its lease")
        nodeclaims = await self._list_nodeclaims()
        if await self._deployments.start(self._tenure.namespace, self._tenure.name, default_replicas=REPLICAS):
            self._report_progress(f"Deployment {self._tenure.path} is running")
        else:
            self._report_progress(f"Deployment {self._tenure.path} not found: start a worker with `tenure worker`")
        await self._wait_until(self._why_not_watched, "see the worker's log and /readyz, and `tenure doctor`")
        self._report_progress("a worker hosts the watch")
        self._progress.step("adopt: waiting until each NodeClaim has a workflow", len(nodeclaims))
        await self._wait_until(lambda: self._why_not_taken_over(nodeclaims), "see `tenure why NODECLAIM`")
        self._report_progress(f"{len(nodeclaims)} NodeClaims have their workflows")
        self._progress.step("adopt: waiting until each NodeClaim has Tenure's hash annotations", len(nodeclaims))
        await self._wait_until(
            lambda: self._why_not_stamped(nodeclaims), "see the status of their NodePool and EC2NodeClass"
        )
        await asyncio.sleep(self._settle)
        await self._check_unchanged(nodeclaims)
        await self._lift_pause()
        return HandoverResult(
            f"Tenure has taken over {len(nodeclaims)} NodeClaims: none drifted, none was replaced", len(nodeclaims)
        )

    async def hand_back(self) -> HandoverResult:
        """Pause and stop Tenure, then start Karpenter. Raises `CommandFailed` with the next step."""
        if await self._is_tenure_running():
            await self._pause_cluster()
        unfinished = await self._wait_until_finished()
        if await self._deployments.stop(self._tenure.namespace, self._tenure.name):
            self._report_progress(f"Deployment {self._tenure.path} is scaled to zero")
        else:
            self._report_progress(f"Deployment {self._tenure.path} not found: stop the workers")
        await self._wait_until(self._why_still_watched, f"find the running worker: {_how_to_find_pods(self._tenure)}")
        self._report_progress("no worker hosts the watch")
        await self._lift_pause()
        if await self._deployments.start(self._karpenter.namespace, self._karpenter.name, default_replicas=REPLICAS):
            self._report_progress(f"Deployment {self._karpenter.path} is running")
        todo = f"see its pods: kubectl -n {self._karpenter.namespace} logs deployment/{self._karpenter.name}"
        await self._wait_until(self._why_not_led, todo)
        nodeclaims = await self._list_nodeclaims()
        return HandoverResult(
            f"Karpenter leads again and manages {len(nodeclaims)} NodeClaims", len(nodeclaims), tuple(unfinished)
        )

    # Conditions to wait for. Each returns the reason why it does not hold yet, or an empty text.

    async def _why_still_led(self) -> str:
        name = self._settings.leader_election_name
        holder = await self._cluster.leases.find_holder("", name, now=datetime.now(UTC))
        return f"{holder} still renews the lease {name}" if holder else ""

    async def _why_not_led(self) -> str:
        led = await self._why_still_led()
        return "" if led else f"no process renews the lease {self._settings.leader_election_name} yet"

    async def _why_not_watched(self) -> str:
        return "" if await self._find_watch_host() else "no worker hosts the watch yet"

    async def _why_still_watched(self) -> str:
        if host := await self._find_watch_host():
            return f"{host} still hosts the watch"
        return await self._why_still_running(self._tenure)

    async def _why_still_running(self, controller: DeploymentReference) -> str:
        """A terminating pod may finish its tasks after it has released the Lease."""
        pods = await self._deployments.list_pods(controller.namespace, controller.name)
        return f"pods of Deployment {controller.path} still run: {_join_few(pods)}" if pods else ""

    async def _why_not_taken_over(self, nodeclaims: Mapping[str, NodeClaimFact]) -> str:
        workflows = await self._list_workflows()
        current = {one.uid: one for one in (await self._list_nodeclaims()).values()}
        waiting = []
        for uid, claim in nodeclaims.items():
            if uid not in current or not needs_workflow(current[uid]):
                continue
            workflow = workflows.get(ids.nodeclaim(self._settings.cluster_name, claim.name, uid))
            expected = decide_first_phase(claim)
            if workflow is None:
                waiting.append(f"{claim.name} has no workflow")
            elif not _has_taken_over(workflow, expected) and not current[uid].deleting:
                waiting.append(f"the workflow of {claim.name} is in {workflow.phase or 'no phase'}, not in {expected}")
        return self._join_remaining(waiting, len(nodeclaims))

    async def _why_not_stamped(self, nodeclaims: Mapping[str, NodeClaimFact]) -> str:
        """Drift is evaluated only after the hash annotations are Tenure's."""
        found = [one for one in (await self._list_nodeclaims()).values() if one.uid in nodeclaims and not one.deleting]
        waiting = [f"{one.name} still has Karpenter's hash annotations" for one in found if _has_karpenter_stamp(one)]
        return self._join_remaining(waiting, len(nodeclaims))

    def _join_remaining(self, waiting: Sequence[str], total: int) -> str:
        """The first few reasons to wait. Reports how many of the NodeClaims have none."""
        self._progress.advance(total - len(waiting), f"{total - len(waiting)} of {total}")
        return _join_few(waiting)

    async def _check_unchanged(self, before: Mapping[str, NodeClaimFact]) -> None:
        """Raises `CommandFailed` if a node drifted, or was deleted although it had an instance and had not expired."""
        current = await self._list_nodeclaims()
        survivors = {uid: one for uid, one in before.items() if _is_expected_to_survive(one)}
        changed = {
            "drifted": [
                one.name for uid, one in current.items() if one.drifted and uid in before and not before[uid].drifted
            ],
            "terminating or deleted": [
                one.name for uid, one in survivors.items() if uid not in current or current[uid].deleting
            ],
        }
        changes = [f"{what}: {', '.join(names)}" for what, names in changed.items() if names]
        if changes:
            raise CommandFailed(
                f"adopt: {'; '.join(changes)}. Voluntary disruption is paused until {self._paused_until:%H:%M UTC}: "
                "`tenure why NAME` explains a node; `tenure pause --cluster` extends the pause, `tenure adopt --back` "
                "hands back"
            )

    async def _wait_until_finished(self) -> list[str]:
        """Wait for launches and drains, for half of the time. Karpenter continues unfinished ones."""
        ends, is_reported = self._ends - (self._ends - time.monotonic()) / 2, False
        while unfinished := await self._list_unfinished():
            if time.monotonic() > ends or not await self._find_watch_host():
                for one in unfinished:
                    self._report_progress(one)
                return unfinished
            if not is_reported:
                self._report_progress(f"{len(unfinished)} nodes are being launched or drained: waiting")
                is_reported = True
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
        return []

    async def _list_unfinished(self) -> list[str]:
        phases = {one.name: one.phase for one in (await self._list_workflows()).values()}
        found = []
        for claim in (await self._list_nodeclaims()).values():
            if claim.deleting:
                found.append(f"{claim.name} is being deleted: Karpenter continues it")
            elif not claim.provider_id:
                found.append(
                    f"{claim.name} has no instance yet: Karpenter launches it, and terminates unclaimed instances"
                )
            elif phases.get(claim.name) in TERMINATING_PHASES:
                found.append(f"{claim.name} is being drained: Karpenter returns it to service and evaluates it again")
        return found

    async def _list_nodeclaims(self) -> dict[str, NodeClaimFact]:
        """By UID, without those of other providers, and without invalid ones, which a worker ignores too."""
        found = await self._claims.read_each(
            lambda one: nodeclaim_fact(one) if is_ours(one["spec"]["nodeClassRef"]) else None
        )
        return {one.uid: one for one in found if one}

    async def _list_workflows(self) -> dict[str, NodeClaimSummary]:
        if self._temporal is None:
            return {}
        try:
            found = await NodeClaimVisibility(self._temporal, self._settings.cluster_name).list_running()
        except RPCError as error:
            raise TryLater(f"Temporal does not list workflows: {error.message}") from error
        return {one.workflow_id: one for one in found}

    async def _find_watch_host(self) -> str:
        namespace = self._settings.system_namespace
        return await self._cluster.leases.find_holder(namespace, LEADER_LEASE, now=datetime.now(UTC))

    async def _is_tenure_running(self) -> bool:
        found = await self._deployments.get(self._tenure.namespace, self._tenure.name)
        return bool(await self._find_watch_host()) or (found is not None and found.replicas > 0)

    async def _pause_cluster(self) -> None:
        """By annotation, which does not need Temporal. An existing pause of another user stays."""
        name = self._settings.system_namespace
        namespace = await self._cluster.client.get(NAMESPACES.path(name))
        if namespace is None:
            self._report_progress(
                f"SYSTEM_NAMESPACE={name} does not exist: voluntary disruption is not paused meanwhile"
            )
            return
        existing = pause_from_annotation((namespace["metadata"].get("annotations") or {}).get(labels.PAUSE, ""))
        if existing is not None and existing.until > datetime.now(UTC) and existing.reason != REASON:
            self._report_progress(f"the cluster is paused already, by {existing.by}: {existing.reason}")
            return
        pause = Pause(by=current_user(), reason=REASON, until=self._paused_until)
        await self._cluster.namespaces.patch_annotations(name, {labels.PAUSE: write_pause(pause)})
        self._report_progress(f"voluntary disruption is paused until {self._paused_until:%H:%M UTC} at the latest")

    async def _lift_pause(self) -> None:
        """Only a pause of `tenure adopt`, also of an earlier run."""
        name = self._settings.system_namespace
        namespace = await self._cluster.client.get(NAMESPACES.path(name))
        text = ((namespace or {"metadata": {}})["metadata"].get("annotations") or {}).get(labels.PAUSE, "")
        existing = pause_from_annotation(text)
        if existing is not None and existing.reason == REASON:
            await self._cluster.namespaces.patch_annotations(name, {labels.PAUSE: None}, only={labels.PAUSE: text})
            self._report_progress("the pause is lifted")

    def _report_progress(self, line: str) -> None:
        self._progress.print_line(f"adopt: {line}")

    async def _wait_until(self, why_not: Callable[[], Awaitable[str]], todo: str) -> None:
        """Raises `CommandFailed` at the deadline; a fault is a reason to wait."""
        while True:
            try:
                reason = await why_not()
            except Fault as fault:
                reason = fault.message
            if not reason:
                return
            if time.monotonic() > self._ends:
                hint = "Then run the command again, which continues from here, or reverse it (with or without --back)"
                raise CommandFailed(f"adopt: timed out: {reason}. To do: {todo}. {hint}")
            await asyncio.sleep(POLL_INTERVAL_SECONDS)


def _has_taken_over(workflow: NodeClaimSummary, expected: Phase) -> bool:
    return workflow.phase in list(Phase) and decide_taken_over(expected, Phase(workflow.phase))


def _is_expected_to_survive(claim: NodeClaimFact) -> bool:
    """Whether it has an instance, is not being deleted and has not expired."""
    lasts = claim.expire_after_seconds
    expired = lasts is not None and claim.created + timedelta(seconds=lasts) < datetime.now(UTC)
    return bool(claim.provider_id) and not claim.deleting and not expired


def _has_karpenter_stamp(claim: NodeClaimFact) -> bool:
    keys = [labels.NODEPOOL_HASH_VERSION] + ([labels.NODECLASS_HASH_VERSION] if claim.provider_id else [])
    return any(claim.annotations.get(key, HASH_VERSION) != HASH_VERSION for key in keys)


def _how_to_find_pods(controller: DeploymentReference) -> str:
    kubectl = f"kubectl -n {controller.namespace}"
    return f"{kubectl} get pods; if the node of a terminating pod is gone or stopped, {kubectl} delete pod NAME --force"


def _join_few(messages: Iterable[str]) -> str:
    found = list(messages)
    return "; ".join(found[:_NAMED]) + (f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
