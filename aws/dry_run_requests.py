"""The three requests of a trial launch: its launch template, CreateFleet and RunInstances, both with DryRun.

Pure. They say what a real launch would say (reference 2.4, 7.2), so that what EC2 refuses here it would refuse there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws.dry_run_choice import Choice
from aws.launch_template_data import NAME_PREFIX, LaunchTemplate
from aws.tags import as_list
from model.kinds.ec2nodeclass import ResolvedSubnet

_TRIAL: Final = "validation/"


def trial_template(template: LaunchTemplate) -> LaunchTemplate:
    """Under a name that no launch uses, so that deleting it takes nothing from one."""
    return template.model_copy(update={"name": template.name.replace(NAME_PREFIX, NAME_PREFIX + _TRIAL, 1)})


def create_template(template: LaunchTemplate) -> dict[str, Any]:
    return {
        "LaunchTemplateName": template.name,
        "LaunchTemplateData": template.data,
        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": as_list(template.tags)}],
    }


def create_fleet(template: LaunchTemplate, choice: Choice, subnets: Sequence[ResolvedSubnet]) -> dict[str, Any]:
    """On-demand, with every subnet."""
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
        "TagSpecifications": _tagged(("fleet", "instance", "volume"), template.tags),
    }


def run_instances(template: LaunchTemplate, choice: Choice, subnet: ResolvedSubnet) -> dict[str, Any]:
    """Interfaces are repeated with the subnet: without it EC2 looks at the default VPC and refuses the groups."""
    return {
        "DryRun": True,
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": choice.instance_type.name,
        "LaunchTemplate": {"LaunchTemplateName": template.name, "Version": "$Latest"},
        "NetworkInterfaces": [{**one, "SubnetId": subnet.id} for one in template.data["NetworkInterfaces"]],
        "TagSpecifications": _tagged(("instance", "volume", "network-interface"), template.tags),
    }


def _tagged(kinds: Sequence[str], tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"ResourceType": kind, "Tags": as_list(tags)} for kind in kinds]
