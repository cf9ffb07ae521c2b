"""Authorize calls of bound keys by their policies, with the checks of EC2.

A fleet needs ec2:CreateFleet on the fleet and its templates. Each launch needs ec2:RunInstances on all resources that
it uses or creates, ec2:CreateTags for resources that it tags, and iam:PassRole for the role of the profile. Rules from
the EC2 and IAM user guides.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenure.sandbox.aws.iam.policy import IDENTITY, AuthorizationDecision, Statement, decide_layers
from tenure.sandbox.aws.state.instance_profiles import profile_at
from tenure.sandbox.aws.wire.responses import AwsError

if TYPE_CHECKING:
    from tenure.sandbox.aws.ec2.fleet.capacity_pools import Pool
    from tenure.sandbox.aws.ec2.fleet.launch import PreparedLaunch
    from tenure.sandbox.aws.ec2.state import Environment

Tags = dict[str, str]
Context = dict[str, list[str]]
# Actions whose handlers check permissions by resource.
CHECKED_BY_HANDLER = frozenset(
    {
        "CreateFleet",
        "RunInstances",
        "TerminateInstances",
        "StopInstances",
        "StartInstances",
        "RebootInstances",
        "CreateLaunchTemplate",
        "CreateLaunchTemplateVersion",
        "ModifyInstanceAttribute",
        "ModifyLaunchTemplate",
        "DeleteLaunchTemplate",
        "CreateTags",
        "DeleteTags",
    }
)
CREATED = ("instance", "volume", "network-interface", "spot-instances-request")
KINDS = {"i": "instance", "vol": "volume", "eni": "network-interface", "lt": "launch-template", "sg": "security-group"}


def request_context(tags: Tags) -> Context:
    """aws:RequestTag/… and aws:TagKeys; absent if the request has no tags."""
    context = {f"aws:requesttag/{key.lower()}": [value] for key, value in tags.items()}
    if tags:
        context["aws:tagkeys"] = list(tags)
    return context


def resource_context(tags: Tags) -> Context:
    found = {f"aws:resourcetag/{key.lower()}": [value] for key, value in tags.items()}
    return found | {f"ec2:resourcetag/{key.lower()}": [value] for key, value in tags.items()}


def launch_context(prepared: PreparedLaunch, kind: str) -> Context:
    """EC2's condition keys of a launch, for the instance and for its volumes; only the first volume is used."""
    data = prepared.spec.data
    if kind == "volume" and prepared.mappings:
        ebs = prepared.mappings[0]["Ebs"]
        encrypted = all(mapping["Ebs"].get("Encrypted") for mapping in prepared.mappings)
        return {
            "ec2:encrypted": [str(encrypted).lower()],
            "ec2:volumetype": [str(ebs.get("VolumeType", "gp2"))],
            "ec2:volumesize": [str(ebs.get("VolumeSize", 8))],
        }
    if kind != "instance":
        return {}
    found = {
        "ec2:instancetype": [prepared.instance_type],
        "ec2:availabilityzone": [prepared.zone],
        "ec2:tenancy": [prepared.criteria.tenancy],
        "ec2:instancemarkettype": [prepared.spec.market],
        "ec2:metadatahttptokens": [data.get("MetadataOptions", {}).get("HttpTokens", "optional")],
    }
    return found | ({"ec2:instanceprofile": [prepared.profile[0]]} if prepared.profile else {})


class IamAuthorizer:
    def __init__(
        self,
        access_key: str,
        layers: Mapping[str, Sequence[Statement]],
        account: str,
        region: str,
        denials: deque[dict[str, str]],
    ) -> None:
        self._key = access_key
        self._layers = layers
        self.account = account
        self.region = region
        self._denials = denials

    def is_allowed(self, action: str, resource: str, context: Context) -> bool:
        return self.decide(action, resource, context).decision == "allow"

    def decide(self, action: str, resource: str, context: Context) -> AuthorizationDecision:
        """Evaluate the policies and record denials."""
        full = {"aws:requestedregion": [self.region], "aws:principalaccount": [self.account], **context}
        found = decide_layers(self._layers, action, resource, full)
        if found.decision != "allow":
            why = {"access_key": self._key, "action": action, "resource": resource, "decision": found.decision}
            self._denials.append(why)
        return found

    def authorize(self, action: str, resource: str, context: Context | None = None) -> None:
        """Raises UnauthorizedOperation with the missing permission, like EC2."""
        found = self.decide(action, resource, context or {})
        if found.decision != "allow":
            article = "an" if found.layer == IDENTITY else "a"
            why = {
                "deny": f"with an explicit deny in {article} {found.layer}",
                "implicit-deny": f"because no {found.layer} allows the {action} action",
            }[found.decision]
            raise AwsError(
                "UnauthorizedOperation",
                f"You are not authorized to perform this operation. User: arn:aws:iam::{self.account}:user/{self._key} "
                f"is not authorized to perform: {action} on resource: {resource} {why}.",
            )

    def arn(self, kind: str, name: str) -> str:
        """ARNs of images and snapshots have no account."""
        owner = "" if kind in ("image", "snapshot") else self.account
        return f"arn:aws:ec2:{self.region}:{owner}:{kind}/{name}"

    def authorize_plain(self, environment: Environment, action: str) -> None:
        """Authorize an EC2 action without resources, such as Describe actions."""
        if action not in CHECKED_BY_HANDLER:
            self.authorize(f"ec2:{action}", "*")

    def create_fleet(self, environment: Environment, fleet_tags: Tags, pools: list[Pool]) -> None:
        self.authorize_create(environment, "CreateFleet", "fleet", fleet_tags)
        for template_id in {pool.template["LaunchTemplateId"] for pool in pools}:
            self._authorize_template(environment, "ec2:CreateFleet", template_id)

    def authorize_create(
        self, environment: Environment, action: str, kind: str, tags: Tags, more: Context | None = None
    ) -> None:
        """Authorize the action on a new resource, and its tags. `more`: condition keys of its kind."""
        context = request_context(tags) | (more or {})
        self.authorize(f"ec2:{action}", self.arn(kind, "*"), context)
        if tags:
            self.authorize("ec2:CreateTags", self.arn(kind, "*"), {**context, "ec2:createaction": [action]})

    def run_instances(self, environment: Environment, prepared: PreparedLaunch, template_id: str | None) -> None:
        action = "ec2:RunInstances"
        self.authorize(action, self.arn("image", prepared.image.id), resource_context(prepared.image.tags))
        subnet_tags = environment.network.tags(prepared.subnet.id)
        self.authorize(action, self.arn("subnet", prepared.subnet.id), resource_context(subnet_tags))
        for group_id, _ in prepared.groups:
            self.authorize(
                action, self.arn("security-group", group_id), resource_context(environment.network.tags(group_id))
            )
        if template_id:
            self._authorize_template(environment, action, template_id)
        self._authorize_extras(environment, action, prepared)
        self._authorize_created(environment, prepared)
        self._pass_role(prepared)

    def _authorize_extras(self, environment: Environment, action: str, prepared: PreparedLaunch) -> None:
        data = prepared.spec.data
        for mapping in prepared.mappings:
            if mapping["Ebs"].get("SnapshotId"):
                self.authorize(action, self.arn("snapshot", mapping["Ebs"]["SnapshotId"]))
        target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget", {})
        reservation = environment.reservations.get(target.get("CapacityReservationId", ""))
        if reservation is not None:
            arn = environment.arn("capacity-reservation", reservation.id, reservation.owner)
            self.authorize(action, arn, resource_context(reservation.tags))
        group = prepared.placement_group
        if group is not None:
            self.authorize(action, self.arn("placement-group", group.name), resource_context(group.tags))
        if data.get("KeyName"):
            self.authorize(action, self.arn("key-pair", data["KeyName"]))

    def _authorize_created(self, environment: Environment, prepared: PreparedLaunch) -> None:
        spec = prepared.spec
        for kind in CREATED:
            if kind == "spot-instances-request" and spec.market != "spot":
                continue
            tags = {k: v for k, v in spec.tags.get(kind, {}).items() if not k.startswith("aws:")}
            self.authorize_create(environment, "RunInstances", kind, tags, launch_context(prepared, kind))

    def _pass_role(self, prepared: PreparedLaunch) -> None:
        profile = profile_at(self.account, prepared.profile[0]) if prepared.profile else None
        if profile is not None:
            self.pass_role(profile.roles[0].arn)

    def pass_role(self, role_arn: str) -> None:
        self.authorize("iam:PassRole", role_arn, {"iam:passedtoservice": ["ec2.amazonaws.com"]})

    def _authorize_template(self, environment: Environment, action: str, template_id: str) -> None:
        tags = environment.templates[template_id].tags
        self.authorize(action, self.arn("launch-template", template_id), resource_context(tags))

    def authorize_each(self, environment: Environment, action: str, kind: str, tagged: dict[str, Tags]) -> None:
        for name, tags in tagged.items():
            self.authorize(f"ec2:{action}", self.arn(kind, name), resource_context(tags))

    def authorize_tagging(self, environment: Environment, action: str, tagged: dict[str, Tags], tags: Tags) -> None:
        for name, present in tagged.items():
            kind = KINDS.get(name.split("-")[0], name.split("-")[0])
            context: dict[str, Any] = {**request_context(tags), **resource_context(present)}
            self.authorize(f"ec2:{action}", self.arn(kind, name), context)
