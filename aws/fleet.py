"""The port `Fleet`: choose and freeze a launch, call CreateFleet with the group's token, describe what came.

`selection.py` chooses, `launch_template_data.py` and `fleet_request.py` find the words; here they meet AWS.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from aws.client import AwsClients
from aws.cluster import ClusterFacts, Clusters
from aws.errors import INSUFFICIENT, LAUNCH_TEMPLATE_NOT_FOUND, TOKEN_MISMATCH
from aws.families import family_of
from aws.fleet_request import create_fleet_request, fleet_answer, refusal
from aws.launch_facts import launch_facts
from aws.launch_template_data import LaunchTemplate, launch_template
from aws.launch_templates import LaunchTemplates
from aws.network import FreeAddresses
from aws.offerings import AwsOfferings
from aws.selection import NOTHING_LEFT, Candidate, Selection, select
from aws.settings import AwsSettings
from aws.tags import node_tags
from aws.unavailable import Unavailable
from aws.user_data import UserDataError, render
from aws.user_data.bootstrap import bootstrap_of
from model import labels
from model.catalogue import InstanceType
from model.faults import BadInput, Fault, TryLater
from model.kinds import EC2NodeClass, NodeClaim
from model.launches import (
    FleetAnswer,
    LaunchGroup,
    LaunchOverride,
    LaunchPreparation,
    LaunchPrepared,
    LaunchRefused,
    LaunchRequest,
)
from model.learnt import NOTHING_LEARNT, Learnt
from model.outcomes import LaunchFacts
from model.quantity import parse_resources
from model.requirements import RequirementError

_MOST_OVERRIDES: Final = 300
"""EC2 takes no more in one fleet; the dearest types are left out."""


class AwsFleet:
    """Raises model.faults."""

    def __init__(
        self,
        clients: AwsClients,
        settings: AwsSettings,
        *,
        offerings: AwsOfferings,
        templates: LaunchTemplates,
        clusters: Clusters,
        free: FreeAddresses,
    ) -> None:
        self._clients, self._settings = clients, settings
        self._offerings, self._templates, self._clusters, self._free = offerings, templates, clusters, free
        self._unavailable = Unavailable(free)

    async def prepare(
        self, claim: NodeClaim, node_class: EC2NodeClass, *, learnt: Learnt = NOTHING_LEARNT, now: datetime
    ) -> LaunchPreparation:
        """Refused when nothing can be had or what was asked for means nothing; else the templates are there."""
        types = (await self._offerings.resolved(node_class)).heeding(learnt)
        subnets = self._free.best(node_class.status.subnets)
        try:
            selection = select(claim, types, subnets.keys(), self._unavailable.covers)
        except RequirementError as error:
            return LaunchRefused(reason=labels.LAUNCH_FAILED, message=f"NodeClaim {claim.name}: {error}")
        if selection is None:
            return LaunchRefused(reason="InsufficientCapacity", message=NOTHING_LEFT)
        try:
            templates = self._templates_for(selection, claim, node_class, await self._clusters.facts())
        except UserDataError as error:
            return LaunchRefused(reason="NodeClassNotReady", message=f"EC2NodeClass {node_class.name}: {error}")
        await self._templates.ensure(list({one.name: one for one in templates.values()}.values()))
        return LaunchPrepared(request=self._request(selection, templates, subnets, claim, node_class))

    async def create(self, group: LaunchGroup) -> FleetAnswer:
        """A template that is missing is made again and the call retried; a token used for other words is BadInput."""
        try:
            raw = await self._clients.call(self._clients.ec2.create_fleet, **create_fleet_request(group))
        except Fault as fault:
            return await self._failed(group, fault)
        answer = fleet_answer(group, raw)
        self._learn(group, answer)
        return answer

    async def describe(
        self, answer: FleetAnswer, node_class: EC2NodeClass, claim: NodeClaim, *, learnt: Learnt = NOTHING_LEARNT
    ) -> Sequence[LaunchFacts]:
        """From what is known of types and subnets, without a call."""
        types = (await self._offerings.resolved(node_class)).heeding(learnt)
        return [launch_facts(one, types.by_name.get(one.instance_type), node_class, claim) for one in answer.instances]

    async def _failed(self, group: LaunchGroup, fault: Fault) -> FleetAnswer:
        if fault.code in LAUNCH_TEMPLATE_NOT_FOUND:
            await self._templates.again(sorted({one.launch_template for one in group.request.overrides}))
            raise TryLater(f"{fault.message}; made again", code=fault.code) from fault
        if fault.code in TOKEN_MISMATCH:
            raise BadInput(f"{fault.message} (token {group.token()} of {group.group_id})", code=fault.code) from fault
        if fault.code not in INSUFFICIENT:
            raise fault
        answer = FleetAnswer(errors=(refusal(fault.code, fault.message, group.request.capacity_type),))
        self._learn(group, answer)
        return answer

    def _learn(self, group: LaunchGroup, answer: FleetAnswer) -> None:
        self._unavailable.learn(answer)
        for instance in answer.instances:
            self._free.taken(instance.subnet_id, 1)
        missing = {error.code for error in answer.errors} & LAUNCH_TEMPLATE_NOT_FOUND
        if missing:
            self._templates.forget(one.launch_template for one in group.request.overrides)

    def _templates_for(
        self, selection: Selection, claim: NodeClaim, node_class: EC2NodeClass, cluster: ClusterFacts
    ) -> Mapping[str, LaunchTemplate]:
        """By instance type. Types with one image and the same numbers in their user data share a template."""
        family = family_of(node_class)
        tags = node_tags(self._settings, node_class, claim.nodepool)
        wants_efa = bool(parse_resources(claim.spec.resources.requests).get(labels.EFA))
        made: dict[tuple[str, int, int], LaunchTemplate] = {}
        by_type: dict[str, LaunchTemplate] = {}
        for candidate in selection.candidates:
            one = candidate.type
            # Custom user data is passed on as it is, so that no number of ours is in it.
            pods = one.capacity.get(labels.PODS, 0) if family.syncs_taints_itself else 0
            key = (one.image_id, pods, one.capacity.get(labels.EFA, 0) if wants_efa else 0)
            if key not in made:
                bootstrap = bootstrap_of(
                    node_class, claim, family, cluster, capacity_type=selection.capacity_type, max_pods=pods
                )
                made[key] = launch_template(
                    node_class,
                    family,
                    self._settings,
                    image_id=one.image_id,
                    user_data=render(family, bootstrap),
                    tags=tags,
                    capacity_type=selection.capacity_type,
                    tenancy=selection.tenancy,
                    placement_group=next(iter(one.labels.get(labels.PLACEMENT_GROUP_ID, ())), ""),
                    efa_interfaces=key[2],
                )
            by_type[one.name] = made[key]
        return by_type

    def _request(
        self,
        selection: Selection,
        templates: Mapping[str, LaunchTemplate],
        subnets: Mapping[str, str],
        claim: NodeClaim,
        node_class: EC2NodeClass,
    ) -> LaunchRequest:
        relaxed = claim.metadata.annotations.get(labels.NODECLAIM_MIN_VALUES_RELAXED) == "true"
        overrides = (
            one
            for candidate in selection.candidates
            for one in _overrides(candidate, templates[candidate.type.name].name, subnets)
        )
        return LaunchRequest(
            node_class=node_class.name,
            capacity_type=selection.capacity_type,
            overrides=tuple(islice(overrides, _MOST_OVERRIDES)),
            tags=node_tags(self._settings, node_class, claim.nodepool),
            instance_profile=node_class.status.instance_profile,
            context="" if relaxed else node_class.spec.context or "",
        )


def _overrides(candidate: Candidate, template: str, subnets: Mapping[str, str]) -> list[LaunchOverride]:
    found: InstanceType = candidate.type
    return [
        LaunchOverride(
            launch_template=template,
            instance_type=found.name,
            zone=offering.zone,
            subnet_id=subnets[offering.zone],
            image_id=found.image_id,
            priority=offering.price,
        )
        for offering in candidate.offerings
    ]
