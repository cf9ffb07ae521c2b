"""Launches and clean-ups tried as dry runs: EC2 says whether they would be allowed, and does nothing.

A trial launch also shows what no simulator can: that image, subnet, groups and profile go together, and that the role
may be passed on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aws.client import AwsClients
from aws.errors import DRY_RUN, INSUFFICIENT
from aws.settings import AwsSettings
from aws.tags import as_list, cluster_tag, node_tags
from model import labels
from model.faults import Fault, Forbidden, Throttled, TryLater
from model.findings import Finding, ok, problem, unknown
from model.kinds import EC2NodeClass

AREA: Final = "trial"
_POOL: Final = "doctor"
_TYPES: Final = {"amd64": "m5.large", "arm64": "m6g.large"}


class Trials:
    def __init__(self, clients: AwsClients, settings: AwsSettings) -> None:
        self._clients, self._settings = clients, settings

    async def launch(self, node_class: EC2NodeClass) -> list[Finding]:
        """RunInstances and CreateLaunchTemplate as this class would have them; nothing before it is resolved."""
        status = node_class.status
        if not (status.amis and status.subnets and status.security_groups):
            return []
        subject = f"EC2NodeClass {node_class.name}"
        tags = as_list(node_tags(self._settings, node_class, _POOL))
        return list(
            await asyncio.gather(
                self._try(
                    f"{subject}: RunInstances", self._clients.ec2.run_instances, self._instance(node_class, tags)
                ),
                self._try(
                    f"{subject}: CreateLaunchTemplate",
                    self._clients.ec2.create_launch_template,
                    {
                        "LaunchTemplateName": f"tenure-doctor-{node_class.name}",
                        "LaunchTemplateData": {"ImageId": status.amis[0].id},
                        "TagSpecifications": [{"ResourceType": "launch-template", "Tags": tags}],
                    },
                ),
            )
        )

    async def clean_up(self) -> list[Finding]:
        """TerminateInstances, CreateTags and DeleteLaunchTemplate on one that is there; nothing where none is."""
        ours = [{"Name": f"tag:{cluster_tag(self._settings)}", "Values": ["owned"]}]
        ec2, found = self._clients.ec2, list[Awaitable[Finding]]()
        for instance_id in (await self._ids("describe_instances", "Reservations", ours))[:1]:
            tags = [{"Key": labels.TAG_EKS_CLUSTER_NAME, "Value": self._settings.cluster_name}]
            found += [
                self._try("TerminateInstances", ec2.terminate_instances, {"InstanceIds": [instance_id]}),
                self._try("CreateTags", ec2.create_tags, {"Resources": [instance_id], "Tags": tags}),
            ]
        for template_id in (await self._ids("describe_launch_templates", "LaunchTemplates", ours))[:1]:
            found.append(
                self._try("DeleteLaunchTemplate", ec2.delete_launch_template, {"LaunchTemplateId": template_id})
            )
        return list(await asyncio.gather(*found))

    def _instance(self, node_class: EC2NodeClass, tags: list[Any]) -> dict[str, Any]:
        status = node_class.status
        image = status.amis[0]
        architectures = [value for one in image.requirements if one.key == labels.ARCH for value in one.values]
        request: dict[str, Any] = {
            "ImageId": image.id,
            "InstanceType": _TYPES[next(iter(architectures), "amd64")],
            "MinCount": 1,
            "MaxCount": 1,
            "NetworkInterfaces": [
                {
                    "DeviceIndex": 0,
                    "SubnetId": status.subnets[0].id,
                    "Groups": [one.id for one in status.security_groups],
                }
            ],
            "TagSpecifications": [
                {"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume", "network-interface")
            ],
        }
        if status.instance_profile:
            request["IamInstanceProfile"] = {"Name": status.instance_profile}
        return request

    async def _ids(self, method: str, key: str, filters: list[Any]) -> list[str]:
        try:
            answer = await self._clients.call(getattr(self._clients.ec2, method), Filters=filters, MaxResults=5)
        except Fault:
            return []
        if key == "Reservations":
            return [str(one["InstanceId"]) for held in answer.get(key, ()) for one in held.get("Instances", ())]
        return [str(one["LaunchTemplateId"]) for one in answer.get(key, ())]

    async def _try(self, subject: str, method: Callable[..., Any], request: dict[str, Any]) -> Finding:
        try:
            await self._clients.call(method, DryRun=True, **request)
        except Forbidden as fault:
            todo = "attach the policies in deploy/iam to the role, and let it pass on the nodes' role (iam:PassRole)"
            return problem(AREA, subject, fault.message, todo)
        except (Throttled, TryLater) as fault:
            return unknown(AREA, subject, fault.message, "try again")
        except Fault as fault:
            if fault.code != DRY_RUN and fault.code not in INSUFFICIENT:
                return problem(AREA, subject, f"{fault.code}: {fault.message}", "mend what EC2 names")
        return ok(AREA, subject, "a dry run would have succeeded")
