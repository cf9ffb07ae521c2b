"""Orphaned resources of launches in the AWS stand-in, under the shipped IAM policy."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from activities.garbage_collection.aws import TEMPLATE_TAG
from tenure.apis import labels
from tenure.aws.adapters import AwsAdapters
from tenure.aws.instancetype.resolver import Region
from tenure.model.errors import Forbidden
from tenure.model.garbage_collection import InventoryLaunchTemplate
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.steps import admin_client, launch, make_launch_group, prepare_launch, resolve_nodeclass

DATA = {"ImageId": "ami-1"}


def template_tags(cluster: str) -> list[dict[str, str]]:
    tags = {f"kubernetes.io/cluster/{cluster}": "owned", labels.TAG_NODEPOOL: "old", labels.TAG_NODECLASS: "gone"}
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def make_template(endpoint: str, name: str, *, cluster: str = "demo", tagged: bool = True) -> str:
    """Create a launch template outside of Tenure. Returns its id."""
    specifications = [{"ResourceType": "launch-template", "Tags": template_tags(cluster)}]
    more = {"TagSpecifications": specifications} if tagged else {}
    created = admin_client(endpoint).create_launch_template(LaunchTemplateName=name, LaunchTemplateData=DATA, **more)
    return str(created["LaunchTemplate"]["LaunchTemplateId"])


async def test_only_launch_templates_of_the_cluster_are_listed_and_deleted(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    await prepare_launch(cloud, await resolve_nodeclass(cloud))
    templates = {one.id: one for one in await cloud.orphaned_resources.list_launch_templates()}
    orphan = make_template(endpoint, "karpenter.k8s.aws/1")
    make_template(endpoint, "karpenter.k8s.aws/2", cluster="other")
    make_template(endpoint, "karpenter.k8s.aws/3", tagged=False)
    make_template(endpoint, "a-node-groups")
    found = {one.id: one for one in await cloud.orphaned_resources.list_launch_templates()}
    assert templates and set(found) == {*templates, orphan}
    assert (found[orphan].pool, found[orphan].node_class, found[orphan].used_lately) == ("old", "gone", False)
    assert all(one.used_lately and datetime.now(UTC) - one.created < timedelta(minutes=5) for one in templates.values())
    await cloud.orphaned_resources.delete_template(found[orphan])
    assert {one.id for one in await cloud.orphaned_resources.list_launch_templates()} == set(templates)


async def test_deleting_a_launch_template_of_another_cluster_is_forbidden(cloud: AwsAdapters, endpoint: str) -> None:
    other = make_template(endpoint, "karpenter.k8s.aws/9", cluster="other")
    mark = InventoryLaunchTemplate(id=other, name="karpenter.k8s.aws/9", created=datetime.now(UTC))
    with pytest.raises(Forbidden):
        await cloud.orphaned_resources.delete_template(mark)


async def test_launch_recreates_a_collected_launch_template(
    cloud: AwsAdapters, control: AwsControl, endpoint: str, region: Region
) -> None:
    """The next request of the same process finds that the template is gone and creates it again."""
    node_class = await resolve_nodeclass(cloud)
    request = await prepare_launch(cloud, node_class)
    for template in await cloud.orphaned_resources.list_launch_templates():
        await cloud.orphaned_resources.delete_template(template)
    new_request = await prepare_launch(cloud, node_class)
    assert new_request.overrides == request.overrides
    result = await cloud.fleet.create(make_launch_group(new_request))
    assert len(result.instances) == 1


async def test_instance_profiles_are_listed_by_path_and_deleted(cloud: AwsAdapters, control: AwsControl) -> None:
    node_class = await resolve_nodeclass(cloud)
    (profile,) = await cloud.orphaned_resources.list_instance_profiles()
    assert profile.node_class_uid == node_class.uid
    assert profile.roles
    assert datetime.now(UTC) - profile.created < timedelta(minutes=5)
    await cloud.orphaned_resources.delete_profile(profile)
    assert await cloud.orphaned_resources.list_instance_profiles() == []
    assert control.list_denials() == []
    await cloud.orphaned_resources.delete_profile(profile)
    await resolve_nodeclass(cloud)
    assert [one.name for one in await cloud.orphaned_resources.list_instance_profiles()] == [profile.name]


async def test_instance_profile_of_another_cluster_is_not_listed(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    await resolve_nodeclass(cloud)
    longer = adapters(endpoint, cluster_name="demo-2")
    assert await longer.orphaned_resources.list_instance_profiles() == []
    longer.close()


async def test_isolated_vpc_lists_no_instance_profiles(endpoint: str, control: AwsControl) -> None:
    isolated = adapters(endpoint, isolated_vpc=True)
    assert list(await isolated.orphaned_resources.list_instance_profiles()) == []
    assert control.count_calls("iam:ListInstanceProfiles") == 0
    isolated.close()


async def test_instance_shows_its_template_and_profile_and_accepts_name_tags(
    cloud: AwsAdapters, control: AwsControl, endpoint: str
) -> None:
    node_class = await resolve_nodeclass(cloud)
    result = await cloud.fleet.create(make_launch_group(await prepare_launch(cloud, node_class)))
    templates = {one.id for one in await cloud.orphaned_resources.list_launch_templates()}
    (found,) = await cloud.instances.list_managed()
    assert found.instance_profile == node_class.status.instance_profile
    assert found.tags[TEMPLATE_TAG] in templates
    await cloud.orphaned_resources.tag_instance(
        found.instance_id, {labels.TAG_NAME: "ip-10-0-0-1", labels.TAG_NODECLAIM: "a"}
    )
    (named,) = await cloud.instances.list_managed()
    assert named.tags[labels.TAG_NAME] == "ip-10-0-0-1"
    assert named.tags[labels.TAG_NODECLAIM] == "a"
    assert control.list_denials() == []
    with pytest.raises(Forbidden):
        await cloud.orphaned_resources.tag_instance(result.instances[0].instance_id, {"team": "a"})


async def test_queued_tag_calls_do_not_delay_terminations(cloud: AwsAdapters, control: AwsControl) -> None:
    """Each kind of call has its own rate limit, so queued tag calls do not delay other calls."""
    result = await launch(cloud, members=3)
    ids = [one.instance_id for one in result.instances]
    tagging = [
        asyncio.create_task(cloud.orphaned_resources.tag_instance(ids[0], {labels.TAG_NAME: f"n{n}"}))
        for n in range(200)
    ]
    assert all(await asyncio.gather(*(cloud.instances.terminate(one) for one in ids[1:])))
    assert sum(not task.done() for task in tagging) > 100
    for task in tagging:
        task.cancel()
    await asyncio.gather(*tagging, return_exceptions=True)


async def test_backdate_moves_creation_times(cloud: AwsAdapters, control: AwsControl) -> None:
    """The garbage collection tests depend on `backdate` of the stand-in."""
    await launch(cloud)
    (instance,) = await cloud.instances.list_managed()
    template, *_ = await cloud.orphaned_resources.list_launch_templates()
    (profile,) = await cloud.orphaned_resources.list_instance_profiles()
    for thing in (instance.instance_id, template.id, profile.name):
        control.backdate(thing, 3600)
    (aged,) = await cloud.instances.list_managed()
    templates = {one.id: one for one in await cloud.orphaned_resources.list_launch_templates()}
    (remaining_profile,) = await cloud.orphaned_resources.list_instance_profiles()
    assert instance.launched_at is not None and aged.launched_at is not None
    hour = timedelta(hours=1)
    assert instance.launched_at - aged.launched_at == hour
    assert template.created - templates[template.id].created == hour
    assert profile.created - remaining_profile.created == hour
