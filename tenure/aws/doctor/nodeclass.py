"""Checks of the resources that an EC2NodeClass selects, and dry runs of launches and deletions.

A dry run of a launch verifies that image, subnet, security groups and profile fit together, and iam:PassRole.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from deploy.commands import deploy_stack
from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.ec2nodeclass_selectors import SecurityGroupTerm, SubnetTerm
from tenure.aws.amifamily.families import AliasError
from tenure.aws.amifamily.images import Images
from tenure.aws.client.client import AwsClients
from tenure.aws.client.errors import DRY_RUN, INSUFFICIENT
from tenure.aws.doctor.node_role import Identities
from tenure.aws.instance.launch_templates import LaunchTemplate
from tenure.aws.nodeclass.subnets_and_security_groups import Networks
from tenure.aws.settings import AwsSettings
from tenure.aws.tags import cluster_tag, node_tags, tag_specifications
from tenure.model.errors import Fault, Finding, Forbidden, NotFound, Subject, Throttled, TryLater

AREA: Final = "selectors"
_FEW_ADDRESSES: Final = 32


class Selectors:
    def __init__(
        self, networks: Networks, images: Images, identities: Identities, cluster: str, *, region: str
    ) -> None:
        """`cluster`, its name in EKS, and `region` are for commands."""
        self._networks, self._images, self._identities = networks, images, identities
        self._cluster, self._region = cluster, region

    async def check(self, node_class: EC2NodeClass) -> list[Finding]:
        """Check every part, even if the check of another part fails."""
        parts = (self._check_subnets, self._check_security_groups, self._check_amis, self._check_identity)
        found = await asyncio.gather(*(_run_guarded(part, node_class) for part in parts))
        return [one for part in found for one in part]

    async def _check_subnets(self, node_class: EC2NodeClass) -> list[Finding]:
        at = Subject(AREA, f"EC2NodeClass {node_class.name} subnets")
        subnets = await self._networks.find_subnets(node_class)
        terms = node_class.spec.subnet_selector_terms
        tag = self._select("spec.subnetSelectorTerms", "SUBNET-ID", node_class, terms)
        create = f"aws ec2 create-subnet --region {self._region} --vpc-id VPC-ID --cidr-block CIDR"
        add = f"{create} --availability-zone ZONE, then {tag}"
        if not subnets:
            return [at.problem("no subnets match", tag)]
        zones = sorted({one.zone for one in subnets})
        message = f"{len(subnets)} in {', '.join(zones)} with {sum(one.free for one in subnets)} free addresses"
        tight = [one.id for one in subnets if one.free < _FEW_ADDRESSES]
        if len(tight) == len(subnets):
            return [at.problem(f"{message}: almost exhausted", add)]
        if tight:
            return [at.advice(f"{message}; few are left in {', '.join(tight)}", add)]
        if len(zones) == 1:
            return [at.advice(message, f"select subnets of other zones too, as capacity differs by zone: {tag}")]
        return [at.ok(message)]

    async def _check_security_groups(self, node_class: EC2NodeClass) -> list[Finding]:
        at = Subject(AREA, f"EC2NodeClass {node_class.name} security groups")
        groups = await self._networks.find_security_groups(node_class)
        if not groups:
            terms = node_class.spec.security_group_selector_terms
            todo = self._select("spec.securityGroupSelectorTerms", "GROUP-ID", node_class, terms)
            return [at.problem("no groups match", todo)]
        return [at.ok(", ".join(one.id for one in groups))]

    async def _check_amis(self, node_class: EC2NodeClass) -> list[Finding]:
        at = Subject(AREA, f"EC2NodeClass {node_class.name} images")
        try:
            images = await self._images.resolve(node_class)
        except AliasError as error:
            return [at.problem(str(error), _edit(node_class, "the alias in spec.amiSelectorTerms"))]
        if not images:
            todo = _edit(node_class, "spec.amiSelectorTerms: owner, name, tags or alias")
            return [at.problem("no images match", todo)]
        old = [one.id for one in images if one.deprecated]
        if old:
            todo = _edit(node_class, "spec.amiSelectorTerms, so that it selects a newer image")
            return [at.advice(f"deprecated: {', '.join(old)}", todo)]
        return [at.ok(f"{len(images)} found, newest {images[0].id}")]

    async def _check_identity(self, node_class: EC2NodeClass) -> list[Finding]:
        """Check the role, or the instance profile if the class has one; users create both."""
        role, profile = node_class.spec.role.rpartition("/")[2], node_class.spec.instance_profile
        at = Subject(AREA, f"EC2NodeClass {node_class.name} role")
        try:
            if profile:
                await self._identities.read_profile(profile)
            elif role:
                await self._identities.read_role(role)
        except NotFound as fault:
            field = "instanceProfile" if profile else "role"
            at = Subject(AREA, f"EC2NodeClass {node_class.name} {field}")
            parameters = ("CreateNodeRole=true", f"NodeRoleName={role}")
            create = deploy_stack("nodes", self._cluster, *parameters, region=self._region)
            if profile:
                create = f"aws iam create-instance-profile --region {self._region} --instance-profile-name {profile}"
                create = f"{create}, then add its role"
            return [at.problem(fault.message, f"{create}, or {_edit(node_class, f'spec.{field}')}")]
        except Forbidden:
            todo = f"check with an administrator's credentials whether {profile or role} exists"
            return [at.unknown("the credentials do not allow the check", todo)]
        return [at.ok(profile or role)]

    def _select(
        self, field: str, resource: str, node_class: EC2NodeClass, terms: Sequence[SubnetTerm | SecurityGroupTerm]
    ) -> str:
        """Commands that select a resource: by the first term with tags, and by a change of the terms."""
        edit = _edit(node_class, field)
        tags: Mapping[str, str] = next((one.tags for one in terms if one.tags), {})
        if not tags:
            return edit
        text = " ".join(f"Key={key},Value={'' if value == '*' else value}" for key, value in tags.items())
        return f"aws ec2 create-tags --region {self._region} --resources {resource} --tags {text}, or {edit}"


async def _run_guarded(
    part: Callable[[EC2NodeClass], Awaitable[list[Finding]]], node_class: EC2NodeClass
) -> list[Finding]:
    try:
        return await part(node_class)
    except Fault as fault:
        todo = "allow the call for these credentials" if isinstance(fault, Forbidden) else "try again"
        return [Subject(AREA, f"EC2NodeClass {node_class.name}").unknown(fault.message, todo)]


def _edit(node_class: EC2NodeClass, field: str) -> str:
    return f"kubectl edit ec2nodeclass {node_class.name}, and correct {field}"


TRIAL_AREA: Final = "trial"
_POOL: Final = "doctor"
_RETRY: Final = "fix the cause that EC2 reports, then run `tenure doctor`"
_TYPES: Final = {"amd64": "m5.large", "arm64": "m6g.large"}


class PermissionDryRuns:
    def __init__(self, clients: AwsClients, settings: AwsSettings) -> None:
        self._clients, self._settings = clients, settings

    async def launch(self, node_class: EC2NodeClass) -> list[Finding]:
        """Dry runs of RunInstances and CreateLaunchTemplate; none before the class is resolved."""
        status = node_class.status
        if not (status.amis and status.subnets and status.security_groups):
            return []
        subject, edit = f"EC2NodeClass {node_class.name}", _edit(node_class, "the field that EC2 names")
        tags = node_tags(self._settings, node_class, _POOL)
        data, ec2 = {"ImageId": status.amis[0].id}, self._clients.ec2
        template = LaunchTemplate(name=f"tenure-doctor-{node_class.name}", data=data, tags=tags).create_request()
        run = self._run_instances_request(node_class, tags)
        found = await asyncio.gather(
            self._dry_run(f"{subject}: RunInstances", ec2.run_instances, run, edit),
            self._dry_run(f"{subject}: CreateLaunchTemplate", ec2.create_launch_template, template, edit),
        )
        return list(found)

    async def clean_up(self) -> list[Finding]:
        """Dry runs of TerminateInstances, CreateTags and DeleteLaunchTemplate with existing resources, if any."""
        ours = [{"Name": f"tag:{cluster_tag(self._settings)}", "Values": ["owned"]}]
        ec2, found = self._clients.ec2, list[Awaitable[Finding]]()
        for instance_id in (await self._find_ids("describe_instances", "Reservations", ours))[:1]:
            tags = [{"Key": labels.TAG_EKS_CLUSTER_NAME, "Value": self._settings.cluster_name}]
            found += [
                self._dry_run("TerminateInstances", ec2.terminate_instances, {"InstanceIds": [instance_id]}),
                self._dry_run("CreateTags", ec2.create_tags, {"Resources": [instance_id], "Tags": tags}),
            ]
        for template_id in (await self._find_ids("describe_launch_templates", "LaunchTemplates", ours))[:1]:
            found.append(
                self._dry_run("DeleteLaunchTemplate", ec2.delete_launch_template, {"LaunchTemplateId": template_id})
            )
        return list(await asyncio.gather(*found))

    def _run_instances_request(self, node_class: EC2NodeClass, tags: Mapping[str, str]) -> dict[str, Any]:
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
            "TagSpecifications": tag_specifications(("instance", "volume", "network-interface"), tags),
        }
        if status.instance_profile:
            request["IamInstanceProfile"] = {"Name": status.instance_profile}
        return request

    async def _find_ids(self, method: str, key: str, filters: list[Any]) -> list[str]:
        try:
            response = await self._clients.call(getattr(self._clients.ec2, method), Filters=filters, MaxResults=5)
        except Fault:
            return []
        if key == "Reservations":
            return [
                str(one["InstanceId"])
                for reservation in response.get(key, ())
                for one in reservation.get("Instances", ())
            ]
        return [str(one["LaunchTemplateId"]) for one in response.get(key, ())]

    async def _dry_run(
        self, subject: str, method: Callable[..., Any], request: dict[str, Any], todo: str = _RETRY
    ) -> Finding:
        """`todo`: the remedy if EC2 rejects the request for another reason than permissions."""
        at = Subject(TRIAL_AREA, subject)
        try:
            await self._clients.call(method, DryRun=True, **request)
        except Forbidden as fault:
            allow = "attach the policies in deploy/iam to another role, with iam:PassRole for the nodes' role"
            stack = deploy_stack("role", self._settings.cluster_name, region=self._clients.region)
            return at.problem(fault.message, f"{stack}, or {allow}")
        except (Throttled, TryLater) as fault:
            return at.unknown(fault.message, "try again")
        except Fault as fault:
            if fault.code != DRY_RUN and fault.code not in INSUFFICIENT:
                return at.problem(f"{fault.code}: {fault.message}", todo)
        return at.ok("a dry run would have succeeded")
