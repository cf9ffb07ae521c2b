"""The instance type of a dry-run launch, and the requests of its calls (reference 2.4, 7.2).

As in Karpenter: a type that a pool allows and that boots a plain image, else a common type, else any type that boots an
image. Common types are checked first, because most images support them and the check of other types is then not needed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass, ResolvedAmi, ResolvedSubnet
from tenure.apis.nodepool import NodePool
from tenure.aws.amifamily.families import family_of
from tenure.aws.amifamily.image_disks import UNKNOWN_DISKS, DisksByImage, ImageDisks
from tenure.aws.instance.launch_templates import NAME_PREFIX, LaunchTemplate
from tenure.aws.instancetype.resolver import Region, ResolvedTypes, resolve_types
from tenure.aws.settings import AwsSettings
from tenure.aws.tags import LAUNCH_TAGGED, instance_tags, tag_specifications
from tenure.model.facts import Expression
from tenure.model.instance_types import InstanceType
from tenure.model.requirements import RequirementError, Requirements

COMMON: Final = ("m5.large", "m6g.large")
_SPECIAL: Final = frozenset({labels.INSTANCE_GPU_COUNT, labels.INSTANCE_ACCELERATOR_COUNT})
_AT_ONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Choice:
    instance_type: InstanceType
    tenancy: str
    pool: str
    """The NodePool for the tags; the name of the class if no pool uses it."""
    zones: frozenset[str]
    """Zones that offer the type and have a subnet."""
    kubelet: Mapping[str, Any] | None
    """spec.kubelet with the values of its expressions; None without expressions."""
    disks: ImageDisks


def choose_launch(
    region: Region, node_class: EC2NodeClass, settings: AwsSettings, pools: Sequence[NodePool], disks: DisksByImage
) -> Choice | None:
    """None if no instance type has an image."""
    pool_requirements = [one for pool in pools if (one := _parse_pool_requirements(pool)) is not None]
    found = _find_fitting_type(region, node_class, settings, pool_requirements)
    if found is None:
        return None
    types, chosen = found
    return Choice(
        instance_type=chosen,
        tenancy="dedicated" if any(_admits_dedicated(one) for one in pool_requirements) else "default",
        pool=min((pool.metadata.name for pool in pools), default=node_class.name),
        zones=frozenset(one.zone for one in chosen.offerings if one.available),
        kubelet=types.kubelets.get(chosen.name),
        disks=disks.get(chosen.image_id, UNKNOWN_DISKS),
    )


def _find_fitting_type(
    region: Region, node_class: EC2NodeClass, settings: AwsSettings, pool_requirements: Sequence[Requirements]
) -> tuple[ResolvedTypes, InstanceType] | None:
    """The first type that a pool can launch, else the first common type, else the first type."""
    plain = {image.id for image in node_class.status.amis if not _is_special(image)}
    fits_none = family_of(node_class).os == "windows" or not pool_requirements
    fallback: tuple[ResolvedTypes, InstanceType] | None = None
    for names in _type_batches(region.types, {name for one in pool_requirements for name in _named_types(one)}):
        batch = replace(region, types={name: region.types[name] for name in names})
        types = resolve_types(batch, node_class, settings)
        for one in types.types:
            if not one.image_id or not any(offering.available for offering in one.offerings):
                continue
            fallback = fallback or (types, one)
            fits = any(need.is_compatible(types.requirements(one)) for need in pool_requirements)
            if not fits_none and one.image_id in plain and fits:
                return types, one
        if fits_none and fallback is not None:
            return fallback
    return fallback


def _type_batches(names: Iterable[str], named: Collection[str]) -> Iterator[Sequence[str]]:
    """The common types one by one, then the types that pools name, then the rest, by name."""
    known = set(names)
    yield from ([name] for name in COMMON if name in known)
    rest = iter(sorted(known - set(COMMON), key=lambda name: (name not in named, name)))
    while batch := list(islice(rest, _AT_ONCE)):
        yield batch


def _named_types(requirements: Requirements) -> Collection[str]:
    found = requirements.get(labels.INSTANCE_TYPE)
    return () if found is None or found.complement else found.values


def _is_special(image: ResolvedAmi) -> bool:
    """Whether the image requires accelerators. Plain images have these keys too, with DoesNotExist."""
    return any(one.key in _SPECIAL and one.operator == "Exists" for one in image.requirements)


def _parse_pool_requirements(pool: NodePool) -> Requirements | None:
    """Requirements of the pool's nodes; None if they are invalid, which the pool's status reports."""
    try:
        return Requirements.from_expressions(
            Expression(key=one.key, operator=one.operator, values=one.values)
            for one in pool.spec.template.spec.requirements
        )
    except RequirementError:
        return None


def _admits_dedicated(requirements: Requirements) -> bool:
    return labels.INSTANCE_TENANCY in requirements and requirements[labels.INSTANCE_TENANCY].has("dedicated")


_TRIAL: Final = "validation/"


def trial_template(template: LaunchTemplate) -> LaunchTemplate:
    """The template under a name that no launch uses, so that it can be deleted."""
    return template.model_copy(update={"name": template.name.replace(NAME_PREFIX, NAME_PREFIX + _TRIAL, 1)})


def _trial_tags(template: LaunchTemplate) -> dict[str, str]:
    """As many tags as a launch of one instance has."""
    return instance_tags(template.tags, template.name, template.name, nodeclaim=template.name)


def create_fleet(template: LaunchTemplate, choice: Choice, subnets: Sequence[ResolvedSubnet]) -> dict[str, Any]:
    """An on-demand request with all subnets."""
    return {
        "DryRun": True,
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": template.name, "Version": "$Latest"},
                "Overrides": [
                    {
                        "InstanceType": choice.instance_type.name,
                        "ImageId": choice.instance_type.image_id,
                        "SubnetId": subnet.id,
                        "AvailabilityZone": subnet.zone,
                    }
                    for subnet in subnets
                ],
            }
        ],
        "TargetCapacitySpecification": {"DefaultTargetCapacityType": "on-demand", "TotalTargetCapacity": 1},
        "OnDemandOptions": {"AllocationStrategy": "lowest-price"},
        "TagSpecifications": tag_specifications(LAUNCH_TAGGED, _trial_tags(template)),
    }


def run_instances(template: LaunchTemplate, choice: Choice, subnet: ResolvedSubnet) -> dict[str, Any]:
    """The interfaces are repeated with the subnet: without it, EC2 uses the default VPC and rejects the groups."""
    return {
        "DryRun": True,
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": choice.instance_type.name,
        "LaunchTemplate": {"LaunchTemplateName": template.name, "Version": "$Latest"},
        "NetworkInterfaces": [{**one, "SubnetId": subnet.id} for one in template.data["NetworkInterfaces"]],
        "TagSpecifications": [
            *tag_specifications(("instance", "volume"), _trial_tags(template)),
            *tag_specifications(("network-interface",), template.tags),
        ],
    }
