"""Validates that an EC2NodeClass can launch nodes, with Karpenter's checks, order and reasons (reference 7.2).

The CRD's schema covers the checks of the API server.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.feature_gates import FeatureGate
from tenure.apis.nodeclaim import NodeClaim
from tenure.apis.nodepool import NodePool
from tenure.aws.amifamily.families import AL2023, Family, family_of
from tenure.aws.amifamily.user_data import UserDataError, UserDataTooLarge, render
from tenure.aws.amifamily.user_data.bootstrap import bootstrap_of
from tenure.aws.amifamily.user_data.validation import why_near_limit, why_settings_dropped
from tenure.aws.client.client import AwsClients
from tenure.aws.cluster_facts import ClusterFacts
from tenure.aws.eks_cluster import Clusters
from tenure.aws.instance.block_devices import why_root_not_mapped
from tenure.aws.instance.launch_templates import Placement, launch_template
from tenure.aws.instancetype.capacity import Machine
from tenure.aws.instancetype.info import TypeInfo
from tenure.aws.instancetype.provider import AwsOfferings
from tenure.aws.kubelet.config import Kubelet
from tenure.aws.kubelet.expressions import ComputedKubelet, ExpressionError
from tenure.aws.nodeclass.dry_run import DryRunResult, DryRuns, Rejected, Trial
from tenure.aws.nodeclass.dry_run_request import Choice, choose_launch
from tenure.aws.nodeclass.spec_validation import Problem, find_spec_problem, why_tags
from tenure.aws.settings import AwsSettings
from tenure.aws.tags import node_tags
from tenure.model.errors import BadInput, Forbidden, NotFound
from tenure.model.provider_results import ConditionPatch


def why_invalid(
    node_class: EC2NodeClass, family: Family, cluster: ClusterFacts, settings: AwsSettings
) -> Problem | None:
    """The first problem of the object and the cluster, without a query."""
    return _why_no_service_cidr(family, cluster) or find_spec_problem(node_class, family, settings.is_gate_enabled)


def why_not_evaluated(
    computed: ComputedKubelet, types: Mapping[str, TypeInfo], machine_of: Callable[[TypeInfo], Machine]
) -> Problem | None:
    """Expressions must have a value for every known type, not only for the types that pools request."""
    failed: list[str] = []
    first = ""
    for name in sorted(types) if computed else ():
        try:
            computed.evaluate(machine_of(types[name]))
        except ExpressionError as error:
            failed, first = [*failed, name], first or str(error)
    if not failed:
        return None
    more = f" (and for {len(failed) - 1} more types)" if len(failed) > 1 else ""
    return labels.KUBELET_EXPRESSION_EVALUATION_FAILED, f"spec.kubelet.{first}{more}"


def _why_no_service_cidr(family: Family, cluster: ClusterFacts) -> Problem | None:
    if family is not AL2023 or cluster.cidr:
        return None
    return labels.CLUSTER_CIDR_RESOLUTION_FAILED, "the cluster's Service CIDR is unknown"


DEPENDENCIES: Final = (
    labels.AMIS_READY,
    labels.INSTANCE_PROFILE_READY,
    labels.SECURITY_GROUPS_READY,
    labels.SUBNETS_READY,
)


@dataclass(frozen=True, slots=True)
class Validated:
    condition: ConditionPatch | None
    """None: no result, so the last condition remains."""
    undecided: str = ""
    retry_after: timedelta | None = None
    warnings: tuple[tuple[str, str], ...] = ()
    user_data_bytes: int = 0


class Validation:
    """Raises model.faults if a required query fails."""

    def __init__(
        self, clients: AwsClients, settings: AwsSettings, *, clusters: Clusters, offerings: AwsOfferings
    ) -> None:
        self._clients, self._settings = clients, settings
        self._clusters, self._offerings = clusters, offerings
        self._trials = DryRuns(clients)

    async def validate(
        self, node_class: EC2NodeClass, dependencies: Mapping[str, str], pools: Sequence[NodePool]
    ) -> Validated:
        """`node_class`: with its new status. `dependencies`: status by condition type."""
        family = family_of(node_class)
        try:
            cluster = await self._clusters.facts()
        except (Forbidden, NotFound, BadInput) as fault:
            if family is not AL2023:
                raise
            return _invalid((labels.CLUSTER_CIDR_RESOLUTION_FAILED, fault.message))
        problem = why_invalid(node_class, family, cluster, self._settings)
        if problem:
            return _invalid(problem)
        waiting = _waiting_condition(dependencies)
        if waiting is not None:
            return Validated(waiting)
        problem = await self._not_evaluated(node_class, family) or why_tags(node_class, self._settings)
        return _invalid(problem) if problem else await self._run_dry_run(node_class, family, cluster, pools)

    def forget(self, node_class: EC2NodeClass) -> None:
        self._trials.forget(node_class)

    async def _not_evaluated(self, node_class: EC2NodeClass, family: Family) -> Problem | None:
        computed = ComputedKubelet(
            node_class.spec.kubelet, enabled=self._settings.is_gate_enabled(FeatureGate.NODECLASS_CEL)
        )
        if not computed:
            return None
        region, settings = await self._offerings.region(), self._settings

        def evaluate() -> Problem | None:
            kubelet = Kubelet.of(node_class.spec.kubelet)
            return why_not_evaluated(
                computed, region.types, lambda info: Machine(info, family, kubelet, node_class.spec, settings)
            )

        return await self._clients.in_thread(evaluate)

    async def _run_dry_run(
        self, node_class: EC2NodeClass, family: Family, cluster: ClusterFacts, pools: Sequence[NodePool]
    ) -> Validated:
        region, settings = await self._offerings.region(), self._settings
        disks = await self._offerings.image_disks(node_class)
        choice = await self._clients.in_thread(lambda: choose_launch(region, node_class, settings, pools, disks))
        if choice is None:
            message = "spec.amiSelectorTerms: no instance type of the region can run any of the images"
            return _invalid((labels.AMI_NOT_FOUND, message))
        try:
            text = self._user_data(node_class, family, cluster, choice)
        except UserDataError as error:
            large = isinstance(error, UserDataTooLarge)
            return _invalid((labels.USER_DATA_SIZE_LIMIT_EXCEEDED if large else labels.INVALID_USER_DATA, str(error)))
        result: DryRunResult = None
        if not self._settings.disable_dry_run:
            result = await self._trials.get_result(self._make_trial(node_class, family, choice, text))
        ignored = (
            (labels.USER_DATA_SETTINGS_DROPPED, why_settings_dropped(node_class.spec.user_data or "", family)),
            (labels.ROOT_VOLUME_NOT_MAPPED, why_root_not_mapped(node_class.spec.block_device_mappings, family, disks)),
        )
        return _validated_of_result(result, len(text.encode()), [one for one in ignored if one[1]])

    def _make_trial(self, node_class: EC2NodeClass, family: Family, choice: Choice, user_data: str) -> Trial:
        template = launch_template(
            node_class,
            family,
            self._settings,
            image_id=choice.instance_type.image_id,
            user_data=user_data,
            tags=node_tags(self._settings, node_class, choice.pool),
            capacity_type=labels.ON_DEMAND,
            placement=Placement(tenancy=choice.tenancy),
            disks=choice.disks,
        )
        return Trial(node_class, choice, template)

    def _user_data(self, node_class: EC2NodeClass, family: Family, cluster: ClusterFacts, choice: Choice) -> str:
        """The user data of a node of the chosen type and pool. Raises UserDataError."""
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


def _waiting_condition(dependencies: Mapping[str, str]) -> ConditionPatch | None:
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


def _validated_of_result(result: DryRunResult, size: int, ignored: Sequence[Problem]) -> Validated:
    """`size`: user data in bytes. `ignored`: warnings about settings without effect, which the condition names too."""
    if isinstance(result, Rejected):
        return _invalid((result.reason, result.message))
    near_limit = why_near_limit(size)
    warnings = (*([(labels.USER_DATA_NEAR_LIMIT, near_limit)] if near_limit else ()), *ignored)
    if result is not None:
        return Validated(None, result.message, result.retry_after, warnings, size)
    good = ConditionPatch(
        type=labels.VALIDATION_SUCCEEDED, status="True", message="; ".join(message for _, message in ignored)
    )
    return Validated(good, warnings=warnings, user_data_bytes=size)


def _invalid(problem: Problem) -> Validated:
    reason, message = problem
    return Validated(ConditionPatch(type=labels.VALIDATION_SUCCEEDED, status="False", reason=reason, message=message))
