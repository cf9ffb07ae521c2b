"""With what a launch is tried: one instance type, and the tenancy and tags that pools would give it.

Pure, and Karpenter's choice (reference 7.2): what a pool of the class could get with the plain image, else something
common, else anything that has an image. Of what a pool could get the common comes first: it works with most images.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from aws.families import Family
from aws.instance_types import ResolvedTypes
from model import labels
from model.catalogue import InstanceType
from model.facts import Expression
from model.kinds import EC2NodeClass, NodePool
from model.kinds.ec2nodeclass import ResolvedAmi
from model.requirement import RequirementError
from model.requirements import Requirements

COMMON: Final = ("m5.large", "m6g.large")
_SPECIAL: Final = frozenset({labels.INSTANCE_GPU_COUNT, labels.INSTANCE_ACCELERATOR_COUNT})


@dataclass(frozen=True, slots=True)
class Choice:
    instance_type: InstanceType
    tenancy: str
    pool: str
    """Whose tags it bears; the class's own name where no pool uses the class."""
    zones: frozenset[str]
    """Where the type is offered and the class has a subnet."""


def choose(types: ResolvedTypes, node_class: EC2NodeClass, family: Family, pools: Sequence[NodePool]) -> Choice | None:
    """None when no instance type has an image."""
    wanted = [one for pool in pools if (one := _requirements(pool)) is not None]
    found = next(_candidates(types, node_class, family, wanted), None)
    if found is None:
        return None
    return Choice(
        instance_type=found,
        tenancy="dedicated" if any(_admits_dedicated(one) for one in wanted) else "default",
        pool=min((pool.metadata.name for pool in pools), default=node_class.name),
        zones=frozenset(one.zone for one in found.offerings if one.available),
    )


def _candidates(
    types: ResolvedTypes, node_class: EC2NodeClass, family: Family, wanted: Sequence[Requirements]
) -> Iterator[InstanceType]:
    plain = {image.id for image in node_class.status.amis if not _is_special(image)}
    launchable = [one for one in types.types if any(offering.available for offering in one.offerings)]
    common = [types.by_name[name] for name in COMMON if name in types.by_name]
    fitting = (
        one
        for one in launchable
        if one.image_id in plain and any(need.compatible(types.requirements(one)) for need in wanted)
    )
    first = iter(()) if family.os == "windows" else sorted(fitting, key=lambda one: one.name not in COMMON)
    return chain(first, (one for one in common if one.image_id), launchable)


def _is_special(image: ResolvedAmi) -> bool:
    """For accelerators alone. A plain image names these keys too, to say that there must be none."""
    return any(one.key in _SPECIAL and one.operator == "Exists" for one in image.requirements)


def _requirements(pool: NodePool) -> Requirements | None:
    """What its nodes have to be; None where that makes no sense, of which the pool's own status tells."""
    try:
        return Requirements.of(
            Expression(key=one.key, operator=one.operator, values=one.values)
            for one in pool.spec.template.spec.requirements
        )
    except RequirementError:
        return None


def _admits_dedicated(wanted: Requirements) -> bool:
    return labels.INSTANCE_TENANCY in wanted and wanted[labels.INSTANCE_TENANCY].has("dedicated")
