"""Instance profiles against the AWS stand-in: one per role; an old one stays in use; all go with their class."""

from typing import Any

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.adapters import AwsAdapters
from tenure.aws.nodeclass.instance_profiles import legacy_name
from tenure.model.errors import Forbidden, NotFound
from tenure.sandbox.aws.admin.client import AwsControl
from tests.adapters.aws.conftest import adapters
from tests.support.aws.builders import build_nodeclass
from tests.support.aws.steps import admin_client

ROLE = "KarpenterNodeRole-demo"
OLD = legacy_name("demo", "us-west-2", "default")


@pytest.fixture
def iam(endpoint: str, control: AwsControl) -> Any:
    return admin_client(endpoint, "iam")


def profile_names(iam: Any) -> list[str]:
    return sorted(one["InstanceProfileName"] for one in iam.list_instance_profiles()["InstanceProfiles"])


def create_foreign_profile(iam: Any, name: str, *, path: str = "/", role: str = ROLE, **tags: str) -> None:
    iam.create_instance_profile(
        InstanceProfileName=name, Path=path, Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
    )
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)


def class_tags(**more: str) -> dict[str, str]:
    return {
        "kubernetes.io/cluster/demo": "owned",
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "topology.kubernetes.io/region": "us-west-2",
        **more,
    }


def delete_role(iam: Any) -> None:
    """IAM deletes only roles without policies."""
    for one in iam.list_attached_role_policies(RoleName=ROLE)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=ROLE, PolicyArn=one["PolicyArn"])
    iam.delete_role(RoleName=ROLE)


async def test_role_with_or_without_path_has_the_same_profile(cloud: AwsAdapters, iam: Any, endpoint: str) -> None:
    first = await resolve_profile(cloud, build_nodeclass(role=ROLE))
    assert await resolve_profile(adapters(endpoint), build_nodeclass(role=f"nodes/team/{ROLE}")) == first
    assert profile_names(iam) == [first]
    (profile,) = iam.list_instance_profiles()["InstanceProfiles"]
    assert [role["RoleName"] for role in profile["Roles"]] == [ROLE]
    assert profile["Path"] == "/karpenter/us-west-2/demo/11112222-3333/"


async def test_new_role_gets_its_own_profile_and_the_old_one_stays(
    cloud: AwsAdapters, iam: Any, control: AwsControl
) -> None:
    iam.create_role(RoleName="KarpenterNodeRole-demo-2", AssumeRolePolicyDocument="{}")
    first = await resolve_profile(cloud, build_nodeclass())
    with pytest.raises(Forbidden) as error:
        await resolve_profile(cloud, build_nodeclass(role="KarpenterNodeRole-demo-2"))
    assert "role 'KarpenterNodeRole-demo-2' (spec.role)" in error.value.message
    assert first in profile_names(iam)


async def test_missing_role_is_cached_and_leaves_no_profile(cloud: AwsAdapters, iam: Any, control: AwsControl) -> None:
    delete_role(iam)
    for _ in range(2):
        with pytest.raises(NotFound, match=r"'KarpenterNodeRole-demo' \(spec\.role\) does not exist"):
            await resolve_profile(cloud, build_nodeclass(role=f"path/{ROLE}"))
    assert control.count_calls("iam:AddRoleToInstanceProfile") == 1
    assert profile_names(iam) == []


async def test_karpenters_profile_of_the_class_is_kept(cloud: AwsAdapters, iam: Any) -> None:
    one = build_nodeclass({"instanceProfile": "demo_123"})
    create_foreign_profile(iam, "demo_123", path="/karpenter/us-west-2/demo/11112222-3333/", **class_tags())
    assert await resolve_profile(cloud, one) == "demo_123"
    assert profile_names(iam) == ["demo_123"]


@pytest.mark.parametrize("other", [{"path": "/karpenter/us-west-2/demo/other/"}, {"path": "/"}, {"role": "other-role"}])
async def test_profile_of_another_class_or_role_is_not_used(
    cloud: AwsAdapters, iam: Any, other: dict[str, str]
) -> None:
    iam.create_role(RoleName="other-role", AssumeRolePolicyDocument="{}")
    where = {"path": "/karpenter/us-west-2/demo/11112222-3333/"} | other
    create_foreign_profile(iam, "demo_123", **where)
    assert await resolve_profile(cloud, build_nodeclass({"instanceProfile": "demo_123"})) != "demo_123"


async def test_cleanup_deletes_all_profiles_of_the_class_and_no_other(cloud: AwsAdapters, iam: Any) -> None:
    await resolve_profile(cloud, build_nodeclass())
    create_foreign_profile(iam, "demo_123", path="/karpenter/us-west-2/demo/11112222-3333/", **class_tags())
    create_foreign_profile(iam, OLD, **class_tags())
    create_foreign_profile(iam, "demo_456", path="/karpenter/us-west-2/demo/other/", **class_tags())
    create_foreign_profile(iam, "mine")
    await cloud.resolver.clean_up(build_nodeclass())
    assert profile_names(iam) == ["demo_456", "mine"]
    await cloud.resolver.clean_up(build_nodeclass())


async def test_foreign_profile_with_legacy_name_is_not_deleted(cloud: AwsAdapters, iam: Any) -> None:
    create_foreign_profile(iam, OLD, **class_tags(**{"karpenter.k8s.aws/ec2nodeclass": "another"}))
    await cloud.resolver.clean_up(build_nodeclass())
    assert profile_names(iam) == [OLD]


async def test_cleanup_works_after_the_role_is_deleted(cloud: AwsAdapters, iam: Any) -> None:
    name = await resolve_profile(cloud, build_nodeclass())
    iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=ROLE)
    delete_role(iam)
    await cloud.resolver.clean_up(build_nodeclass())
    assert profile_names(iam) == []


async def test_profile_is_created_again_after_cleanup(cloud: AwsAdapters, iam: Any) -> None:
    name = await resolve_profile(cloud, build_nodeclass())
    await cloud.resolver.clean_up(build_nodeclass())
    assert await resolve_profile(cloud, build_nodeclass()) == name
    assert profile_names(iam) == [name]


async def test_isolated_vpc_makes_no_iam_calls(endpoint: str, control: AwsControl) -> None:
    cloud = adapters(endpoint, isolated_vpc=True)
    control.clear_counters()
    assert await resolve_profile(cloud, build_nodeclass(role="", instanceProfile="mine")) == "mine"
    await cloud.resolver.clean_up(build_nodeclass())
    assert [name for name in control.get_counters() if name.startswith("iam:")] == []


@pytest.mark.parametrize(
    ("text", "found"), [("", 0xCBF29CE484222325), ("a", 0xAF63BD4C8601B7BE), ("foobar", 0x340D8765A4DDA9C2)]
)
def test_legacy_name_uses_karpenters_hash(text: str, found: int) -> None:
    assert legacy_name("demo", text[:2], text[2:]) == f"demo_{found}"


async def resolve_profile(cloud: AwsAdapters, one: EC2NodeClass) -> str:
    part = await cloud.resolver._parts.profiles.resolve(one)
    return part


async def test_profile_of_reports_the_profile_without_creating_it(
    cloud: AwsAdapters, iam: Any, control: AwsControl
) -> None:
    to_be = await cloud.resolver.profile_of(build_nodeclass())
    assert (to_be.there, to_be.whose) == (False, "Tenure's") and profile_names(iam) == []
    profile = await cloud.resolver.profile_of(build_nodeclass(role="", instanceProfile="mine"))
    assert (profile.name, profile.there, profile.whose) == ("mine", False, "the class's own")
    assert control.count_calls("iam:CreateInstanceProfile") == 0
    assert await resolve_profile(cloud, build_nodeclass()) == to_be.name
    assert (await cloud.resolver.profile_of(build_nodeclass())).there


async def test_karpenters_profile_stays_in_use_while_it_has_the_role(cloud: AwsAdapters, iam: Any) -> None:
    create_foreign_profile(iam, "demo_40679907953804", path="/karpenter/us-west-2/demo/11112222-3333/", **class_tags())
    taken = EC2NodeClass.from_object(
        {**build_nodeclass().to_object(), "status": {"instanceProfile": "demo_40679907953804"}}
    )
    found = await cloud.resolver.profile_of(taken)
    assert (found.name, found.there, found.whose) == ("demo_40679907953804", True, "Karpenter's")
    assert await resolve_profile(cloud, taken) == found.name
