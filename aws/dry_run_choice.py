"""With what a launch is tried: one instance type, and the tenancy and tags that pools would give it.

Pure, and Karpenter's choice (reference 7.2): what a pool of the class could get with the plain image, else something
common, else anything that has an image. Of what a pool could get the common comes first: it works with most images,
and the other thousand types need not be looked at.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from aws.families import family_of
from aws.instance_types import Region, ResolvedTypes, resolve_types
from aws.settings import AwsSettings
from model import labels
from model.catalogue import InstanceType
from model.facts import Expression
from model.kinds import EC2NodeClass, NodePool
from model.kinds.ec2nodeclass import ResolvedAmi
from model.requirement import RequirementError
from model.requirements import Requirements

COMMON: Final = ("m5.large", "m6g.large")
_SPECIAL: Final = frozenset({labels.INSTANCE_GPU_COUNT, labels.INSTANCE_ACCELERATOR_COUNT})
_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Choice:
    instance_type: InstanceType
    tenancy: str
    pool: str
    """Whose tags it bears; the class's own name where no pool uses the class."""
    zones: frozenset[str]
    """Where the type is offered and the class has a subnet."""
    kubelet: Mapping[str, Any] | None
    """spec.kubelet with amounts in the place of expressions, where it has any."""


def choose(region: Region, node_class: EC2NodeClass, settings: AwsSettings, pools: Sequence[NodePool]) -> Choice | None:
    """None when no instance type has an image."""
    wanted = [one for pool in pools if (one := _requirements(pool)) is not None]
    found = _fitting(region, node_class, settings, wanted)
    if found is None:
        return None
    types, chosen = found
    return Choice(
        instance_type=chosen,
        tenancy="dedicated" if any(_admits_dedicated(one) for one in wanted) else "default",
        pool=min((pool.metadata.name for pool in pools), default=node_class.name),
        zones=frozenset(one.zone for one in chosen.offerings if one.available),
        kubelet=types.kubelets.get(chosen.name),
    )


def _fitting(
    region: Region, node_class: EC2NodeClass, settings: AwsSettings, wanted: Sequence[Requirements]
) -> tuple[ResolvedTypes, InstanceType] | None:
    """The first that a pool could get, else the first common one, else the first of all."""
    plain = {image.id for image in node_class.status.amis if not _is_special(image)}
    fits_none = family_of(node_class).os == "windows" or not wanted
    fallback: tuple[ResolvedTypes, InstanceType] | None = None
    for names in _batches(region.types, {name for one in wanted for name in _named(one)}):
        types = resolve_types(_only(region, names), node_class, settings)
        for one in types.types:
            if not one.image_id or not any(offering.available for offering in one.offerings):
                continue
            fallback = fallback or (types, one)
            fits = any(need.compatible(types.requirements(one)) for need in wanted)
            if not fits_none and one.image_id in plain and fits:
                return types, one
        if fits_none and fallback is not None:
            return fallback
    return fallback


def _batches(names: Iterable[str], named: Collection[str]) -> Iterator[Sequence[str]]:
    """The common ones one by one, in their order; then those that pools name; then the rest, by name."""
    known = set(names)
    yield from ([name] for name in COMMON if name in known)
    rest = iter(sorted(known - set(COMMON), key=lambda name: (name not in named, name)))
    while batch := list(islice(rest, _AT_ONCE)):
        yield batch


def _named(wanted: Requirements) -> Collection[str]:
    found = wanted.get(labels.INSTANCE_TYPE)
    return () if found is None or found.complement else found.values


def _only(region: Region, names: Iterable[str]) -> Region:
    return replace(region, types={name: region.types[name] for name in names})


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
