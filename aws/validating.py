"""Whether nodes can be launched with an EC2NodeClass: Karpenter's checks in Karpenter's order (reference 7.2).

`validation.py` has what the class says by itself, `dry_run.py` what EC2 says to a trial; here they meet the cluster,
the conditions of the other parts and the instance types.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from aws.capacity import Machine
from aws.client import AwsClients
from aws.cluster import ClusterFacts, Clusters
from aws.dry_run import DryRuns, Trial
from aws.dry_run_choice import Choice, choose
from aws.dry_run_verdict import Verdict, Wrong
from aws.families import AL2023, Family, family_of
from aws.kubelet import Kubelet
from aws.kubelet_computed import ComputedKubelet
from aws.launch_template_data import Place, launch_template
from aws.offerings import AwsOfferings
from aws.settings import NODECLASS_CEL, AwsSettings
from aws.tags import node_tags
from aws.user_data import UserDataError, UserDataTooLarge, render
from aws.user_data.bootstrap import bootstrap_of
from aws.user_data_check import why_near_limit
from aws.validation import Problem, why_invalid, why_not_evaluated, why_tags
from model import labels
from model.faults import BadInput, Forbidden, NotFound
from model.kinds import EC2NodeClass, NodeClaim, NodePool
from model.outcomes import ConditionPatch

DEPENDENCIES: Final = (
    labels.AMIS_READY,
    labels.INSTANCE_PROFILE_READY,
    labels.SECURITY_GROUPS_READY,
    labels.SUBNETS_READY,
)


@dataclass(frozen=True, slots=True)
class Validated:
    condition: ConditionPatch | None
    """None: there is no verdict, and the last one stands."""
    unanswered: str = ""
    again_in: timedelta | None = None
    warnings: tuple[tuple[str, str], ...] = ()
    user_data_bytes: int = 0


class Validation:
    """Raises model.faults where something has to be asked first and does not answer."""

    def __init__(
        self, clients: AwsClients, settings: AwsSettings, *, clusters: Clusters, offerings: AwsOfferings
    ) -> None:
        self._clients, self._settings = clients, settings
        self._clusters, self._offerings = clusters, offerings
        self._trials = DryRuns(clients)

    async def of(
        self, node_class: EC2NodeClass, dependencies: Mapping[str, str], pools: Sequence[NodePool]
    ) -> Validated:
        """`node_class` with the status that it is about to get; `dependencies`: condition to status."""
        family = family_of(node_class)
        try:
            cluster = await self._clusters.facts()
        except (Forbidden, NotFound, BadInput) as fault:
            if family is not AL2023:
                raise
            return _wrong((labels.CLUSTER_CIDR_RESOLUTION_FAILED, fault.message))
        wrong = why_invalid(node_class, family, cluster, expressions=self._settings.gate(NODECLASS_CEL))
        if wrong:
            return _wrong(wrong)
        waiting = _waiting(dependencies)
        if waiting is not None:
            return Validated(waiting)
        wrong = await self._not_evaluated(node_class, family) or why_tags(node_class)
        return _wrong(wrong) if wrong else await self._tried(node_class, family, cluster, pools)

    def forget(self, node_class: EC2NodeClass) -> None:
        self._trials.forget(node_class)

    async def _not_evaluated(self, node_class: EC2NodeClass, family: Family) -> Problem | None:
        computed = ComputedKubelet(node_class.spec.kubelet, enabled=self._settings.gate(NODECLASS_CEL))
        if not computed:
            return None
        region, settings = await self._offerings.region(), self._settings

        def evaluated() -> Problem | None:
            kubelet = Kubelet.of(node_class.spec.kubelet)
            return why_not_evaluated(
                computed,
                region.types,
                lambda info: Machine(info, family, kubelet, node_class.spec, settings),
            )

        return await self._clients.in_thread(evaluated)

    async def _tried(
        self, node_class: EC2NodeClass, family: Family, cluster: ClusterFacts, pools: Sequence[NodePool]
    ) -> Validated:
        region, settings = await self._offerings.region(), self._settings
        choice = await self._clients.in_thread(lambda: choose(region, node_class, settings, pools))
        if choice is None:
            told = "spec.amiSelectorTerms: no instance type of the region runs any of the images"
            return _wrong((labels.AMI_NOT_FOUND, told))
        try:
            text = self._user_data(node_class, family, cluster, choice)
        except UserDataError as error:
            large = isinstance(error, UserDataTooLarge)
            return _wrong((labels.USER_DATA_SIZE_LIMIT_EXCEEDED if large else labels.INVALID_USER_DATA, str(error)))
        verdict: Verdict = None
        if not self._settings.disable_dry_run:
            verdict = await self._trials.verdict(self._trial(node_class, family, choice, text))
        return _judged(verdict, len(text.encode()))

    def _trial(self, node_class: EC2NodeClass, family: Family, choice: Choice, user_data: str) -> Trial:
        template = launch_template(
            node_class,
            family,
            self._settings,
            image_id=choice.instance_type.image_id,
            user_data=user_data,
            tags=node_tags(self._settings, node_class, choice.pool),
            capacity_type=labels.ON_DEMAND,
            placement=Place(tenancy=choice.tenancy),
        )
        return Trial(node_class, choice, template)

    def _user_data(
        self,
        node_class: EC2NodeClass,
        family: Family,
        cluster: ClusterFacts,
        choice: Choice,
    ) -> str:
        """As a node of the chosen type and pool would get it. Raises UserDataError."""
        claim = NodeClaim.from_object(
            {"metadata": {"name": "validation", "labels": {labels.NODEPOOL: choice.pool}}, "spec": {}}
        )
        bootstrap = bootstrap_of(
            node_class,
            claim,
            family,
            cluster,
            capacity_type=labels.ON_DEMAND,
            max_pods=choice.instance_type.capacity.get(labels.PODS, 0),
            computed=choice.kubelet,
        )
        return render(family, bootstrap)


def _waiting(dependencies: Mapping[str, str]) -> ConditionPatch | None:
    for status in ("False", "Unknown"):
        bad = [name for name in DEPENDENCIES if dependencies.get(name, "Unknown") == status]
        if bad:
            return ConditionPatch(
                type=labels.VALIDATION_SUCCEEDED,
                status=status,
                reason=labels.DEPENDENCIES_NOT_READY,
                message="waiting for " + ", ".join(bad),
            )
    return None


def _judged(verdict: Verdict, size: int) -> Validated:
    """`size` of the user data in bytes."""
    if isinstance(verdict, Wrong):
        return _wrong((verdict.reason, verdict.message))
    near = why_near_limit(size)
    warnings = ((labels.USER_DATA_NEAR_LIMIT, near),) if near else ()
    if verdict is not None:
        return Validated(None, verdict.message, verdict.again_in, warnings, size)
    good = ConditionPatch(type=labels.VALIDATION_SUCCEEDED, status="True")
    return Validated(good, warnings=warnings, user_data_bytes=size)


def _wrong(wrong: Problem) -> Validated:
    reason, message = wrong
    return Validated(ConditionPatch(type=labels.VALIDATION_SUCCEEDED, status="False", reason=reason, message=message))
