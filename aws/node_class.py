"""The port `NodeClassResolver`: what an EC2NodeClass's selectors mean now, and its conditions with Karpenter's reasons.

Each part stands by itself: what cannot be asked at the moment keeps its last value and condition, is told of, and keeps
no other part from being written. Only an empty answer makes a class not ready.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from aws.cluster import Clusters
from aws.launch_templates import LaunchTemplates
from aws.node_class_parts import Part, Parts
from aws.profiles import ProfileInUse
from aws.validating import DEPENDENCIES, Validated, Validation
from model import labels
from model.faults import Fault
from model.kinds import EC2NodeClass, NodePool
from model.outcomes import ConditionPatch, Resolved

A = TypeVar("A")
_SOON: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class _Unanswered:
    what: str
    """The condition that stays as it is."""
    why: str
    kind: str


class AwsNodeClasses:
    """Raises model.faults only from `clean_up`: where AWS does not answer `resolve`, the answer says so."""

    def __init__(self, *, parts: Parts, validation: Validation, templates: LaunchTemplates, clusters: Clusters) -> None:
        self._parts, self._validation, self._templates, self._clusters = parts, validation, templates, clusters

    async def resolve(self, node_class: EC2NodeClass, pools: Sequence[NodePool] = ()) -> Resolved:
        """The parts in Karpenter's order, which is also that of the conditions."""
        answers = await asyncio.gather(
            *self._selected(node_class), _asked(labels.INSTANCE_PROFILE_READY, self._parts.profile(node_class))
        )
        found = [one for one in answers if isinstance(one, Part)]
        silent = [one for one in answers if isinstance(one, _Unanswered)]
        status = {key: value for part in found for key, value in part.status.items()}
        conditions = [one for part in found for one in part.conditions]
        validated, more = await self._validated(_with(node_class, status), _standing(node_class, conditions), pools)
        silent += more
        if validated.again_in is not None:
            # EC2 misses what IAM was said to have: the next look asks IAM too.
            self._parts.profiles.forget()
        if validated.condition is not None:
            conditions.append(validated.condition)
        return Resolved(
            status=status,
            conditions=(*conditions, *_answering(node_class, silent)),
            unanswered=tuple(f"{one.what}: {one.why}" for one in silent),
            warnings=validated.warnings,
            user_data_bytes=validated.user_data_bytes,
            ca_bundle=await self._ca_bundle(),
            again_in=validated.again_in or (_SOON if self._may_change(node_class) else None),
        )

    async def preview(self, node_class: EC2NodeClass) -> Resolved:
        """What `resolve` would find of the selectors, with nothing made and nothing tried: reads alone."""
        answers = await asyncio.gather(*self._selected(node_class))
        found = [one for one in answers if isinstance(one, Part)]
        silent = [one for one in answers if isinstance(one, _Unanswered)]
        return Resolved(
            status={key: value for part in found for key, value in part.status.items()},
            conditions=tuple(one for part in found for one in part.conditions),
            unanswered=tuple(f"{one.what}: {one.why}" for one in silent),
            ca_bundle=await self._ca_bundle(),
        )

    async def profile_of(self, node_class: EC2NodeClass) -> ProfileInUse:
        """What new nodes would have; made only by `resolve`. Raises model.faults."""
        return await self._parts.profiles.in_use(node_class)

    def _selected(self, node_class: EC2NodeClass) -> list[Coroutine[Any, Any, Part | _Unanswered]]:
        parts = self._parts
        return [
            _asked(labels.AMIS_READY, parts.amis(node_class)),
            _asked(labels.CAPACITY_RESERVATIONS_READY, parts.reserved(node_class)),
            _asked(labels.PLACEMENT_GROUP_READY, parts.placement_group(node_class)),
            _asked(labels.SUBNETS_READY, parts.subnets(node_class)),
            _asked(labels.SECURITY_GROUPS_READY, parts.groups(node_class)),
        ]

    async def _ca_bundle(self) -> str | None:
        cluster = await _asked("cluster", self._clusters.facts())
        return None if isinstance(cluster, _Unanswered) else cluster.ca_bundle

    async def clean_up(self, node_class: EC2NodeClass) -> None:
        self._validation.forget(node_class)
        await asyncio.gather(self._parts.profiles.clean_up(node_class), self._templates.delete_of(node_class))

    async def _validated(
        self, node_class: EC2NodeClass, dependencies: Mapping[str, str], pools: Sequence[NodePool]
    ) -> tuple[Validated, list[_Unanswered]]:
        answer = await _asked(labels.VALIDATION_SUCCEEDED, self._validation.of(node_class, dependencies, pools))
        if isinstance(answer, _Unanswered):
            return Validated(None), [answer]
        if not answer.unanswered:
            return answer, []
        return answer, [_Unanswered(labels.VALIDATION_SUCCEEDED, answer.unanswered, "Undecided")]

    @staticmethod
    def _may_change(node_class: EC2NodeClass) -> bool:
        """Reservations fill and end, the gate that shows them is switched, and placement groups are deleted and made
        anew, with nothing that tells of it."""
        spec = node_class.spec
        return bool(spec.capacity_reservation_selector_terms or spec.placement_group_selector)


async def _asked(what: str, asking: Awaitable[A]) -> A | _Unanswered:
    try:
        return await asking
    except Fault as fault:
        told = f"{fault.code}: {fault.message}" if fault.code else fault.message
        return _Unanswered(what, told, type(fault).__name__)


def _with(node_class: EC2NodeClass, status: Mapping[str, object]) -> EC2NodeClass:
    """As the object will be once this is written."""
    raw = node_class.to_object()
    return EC2NodeClass.from_object({**raw, "status": {**(raw.get("status") or {}), **status}})


def _standing(node_class: EC2NodeClass, conditions: Iterable[ConditionPatch]) -> dict[str, str]:
    """Status by condition: found just now, or told before of this generation."""
    generation = node_class.metadata.generation
    before = {one.type: one.status for one in node_class.conditions if one.observed_generation == generation}
    now = {one.type: one.status for one in conditions}
    return {name: now.get(name) or before.get(name, "Unknown") for name in DEPENDENCIES}


def _answering(node_class: EC2NodeClass, silent: Sequence[_Unanswered]) -> list[ConditionPatch]:
    """A condition beside those that count: there while AWS cannot be asked, and gone when it answers again."""
    if not silent:
        there = node_class.condition(labels.AWS_ANSWERS) is not None
        return [ConditionPatch(type=labels.AWS_ANSWERS, status="")] if there else []
    message = "; ".join(f"{one.what} stands as it was: {one.why}" for one in silent)
    return [ConditionPatch(type=labels.AWS_ANSWERS, status="False", reason=silent[0].kind, message=message)]
