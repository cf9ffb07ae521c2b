"""EC2NodeClasses against the AWS stand-in: selectors, conditions for selectors without result, and images."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.adapters import AwsAdapters
from tenure.aws.instancetype.resolver import Region
from tenure.model.rollout import ImagePin, ami_selector_digest
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.builders import build_nodeclass
from tests.support.aws.steps import resolve_nodeclass


async def test_repeated_resolve_makes_no_calls(cloud: AwsAdapters, control: AwsControl) -> None:
    one = await resolve_nodeclass(cloud)
    control.clear_counters()
    assert (await resolve_nodeclass(cloud, one)).status == one.status
    assert control.get_counters() == {}


@pytest.mark.parametrize(
    ("spec", "condition", "status", "reason"),
    [
        ({"amiSelectorTerms": [{"alias": "al2@latest"}]}, "AMIsReady", "False", "UnsupportedAlias"),
        ({"subnetSelectorTerms": [{"tags": {"no": "such"}}]}, "SubnetsReady", "False", "SubnetsNotFound"),
        (
            {"securityGroupSelectorTerms": [{"name": "no-such"}]},
            "SecurityGroupsReady",
            "False",
            "SecurityGroupsNotFound",
        ),
        ({"role": "no-such-role"}, "InstanceProfileReady", "Unknown", "AwaitingReconciliation"),
        ({"kubelet": {"maxPods": "max_pods"}}, "ValidationSucceeded", "False", "KubeletExpressionsDisabled"),
    ],
)
async def test_missing_reference_of_a_class_is_reported_in_conditions(
    cloud: AwsAdapters, spec: dict[str, Any], condition: str, status: str, reason: str
) -> None:
    found = await cloud.resolver.resolve(build_nodeclass(**spec))
    conditions = {one.type: one for one in found.conditions}
    assert (conditions[condition].status, conditions[condition].reason) == (status, reason)
    assert conditions[condition].message
    if condition != "ValidationSucceeded":
        assert conditions["ValidationSucceeded"].reason == "DependenciesNotReady"


async def test_selectors_by_id_and_name_find_the_same_resources(cloud: AwsAdapters) -> None:
    one = await resolve_nodeclass(cloud)
    status = one.status
    named = build_nodeclass(
        uid="another",
        amiFamily="AL2023",
        amiSelectorTerms=[{"id": status.amis[0].id}],
        subnetSelectorTerms=[{"id": status.subnets[0].id}, {"tags": {"karpenter.sh/discovery": "*"}}],
        securityGroupSelectorTerms=[{"name": status.security_groups[0].name}],
    )
    found = await resolve_nodeclass(cloud, named)
    assert {subnet.id for subnet in found.status.subnets} == {subnet.id for subnet in status.subnets}
    assert found.status.security_groups == status.security_groups
    assert [image.id for image in found.status.amis] == [status.amis[0].id]
    assert [need.key for need in found.status.amis[0].requirements] == [labels.ARCH]


async def test_pinned_image_replaces_the_image_for_the_same_types(cloud: AwsAdapters) -> None:
    """After a rollback of a rollout, the pin replaces one standard image and keeps its instance type requirements."""
    plain = await resolve_nodeclass(cloud, build_nodeclass(uid="plain"))
    invalid_image, valid_image = plain.status.amis[0], plain.status.amis[-1]
    now = datetime.now(UTC)
    pin = ImagePin(
        images={invalid_image.id: valid_image.id},
        terms=ami_selector_digest(plain),
        by="ann",
        reason="its kubelet dies",
        since=now,
        until=now + timedelta(days=1),
    )
    raw = build_nodeclass(uid="pinned").to_object()
    raw["metadata"]["annotations"] = {labels.IMAGE_PIN: pin.model_dump_json()}
    found = await cloud.resolver.resolve(EC2NodeClass.from_object(raw))
    amis = EC2NodeClass.from_object({**raw, "status": found.status}).status.amis
    assert [image.id for image in amis] == [valid_image.id, *(image.id for image in plain.status.amis[1:])]
    assert [image.requirements for image in amis] == [image.requirements for image in plain.status.amis]
    conditions = {one.type: one for one in found.conditions}
    assert (conditions["ImagesPinned"].status, conditions["ImagesPinned"].reason) == ("True", "RolledBack")
    assert conditions["AMIsReady"].status == "True"


async def test_prices_are_estimated_when_they_cannot_be_read(endpoint: str, control: AwsControl) -> None:
    control.add_fault("5xx", service="pricing")
    control.add_fault("5xx", service="ec2", action="DescribeSpotPriceHistory")
    cloud = adapters(endpoint)
    types = await cloud.offerings.instance_types(await resolve_nodeclass(cloud))
    prices = {one.name: one.offerings[0].price for one in types if one.offerings}
    assert prices["m5.large"] < prices["m5.xlarge"] < prices["g5.xlarge"]
    cloud.close()


async def test_catalogue_has_every_type_of_every_class(
    endpoint: str, control: AwsControl, whole_region: Region
) -> None:
    cloud = adapters(endpoint, whole_region)
    one = await resolve_nodeclass(cloud)
    found = await cloud.offerings.catalogue([one])
    types = {each.name: each for each in found.by_node_class["default"]}
    assert len(types) > 1300
    assert types["m5.large"].image_id != types["m6g.large"].image_id != types["g5.xlarge"].image_id
    zones = {o.zone for o in types["m5.large"].offerings if o.available}
    assert zones == {subnet.zone for subnet in one.status.subnets}
    control.clear_counters()
    assert (await cloud.offerings.catalogue([one])).by_node_class["default"] == found.by_node_class["default"]
    assert control.get_counters() == {}
    cloud.close()


@pytest.mark.parametrize(("alias", "count"), [("bottlerocket@latest", 5), ("al2023@latest", 5)])
async def test_alias_has_an_image_for_every_kind_of_node(cloud: AwsAdapters, alias: str, count: int) -> None:
    one = await resolve_nodeclass(cloud, build_nodeclass(amiSelectorTerms=[{"alias": alias}]))
    assert len(one.status.amis) == count
    types = {each.name: each.image_id for each in await cloud.offerings.instance_types(one)}
    assert len({types[name] for name in ("m5.large", "m6g.large", "g5.xlarge", "g5g.xlarge")}) == 4


async def test_preview_equals_resolve_and_only_reads(cloud: AwsAdapters, control: AwsControl) -> None:
    control.clear_counters()
    preview = await cloud.resolver.preview(build_nodeclass())
    writes = [
        one for one in control.get_counters() if not one.partition(":")[2].startswith(("Describe", "Get", "List"))
    ]
    assert writes == [], f"preview made other calls than reads: {writes}"
    found = await cloud.resolver.resolve(build_nodeclass())
    assert preview.ca_bundle == found.ca_bundle
    assert preview.status == {key: value for key, value in found.status.items() if key != "instanceProfile"}
