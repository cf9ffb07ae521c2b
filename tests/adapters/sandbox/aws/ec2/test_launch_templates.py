"""Launch templates: stored data, pages and error codes as in EC2."""

import pytest

from tests.support.sandbox.aws.kit import USER_DATA, FakeAwsClient, raises_code, tag_list


def test_template_data_is_returned_unchanged(kit: FakeAwsClient) -> None:
    kit.create_template(MetadataOptions={"HttpTokens": "required"}, Monitoring={"Enabled": False})
    response = kit.ec2.describe_launch_template_versions(LaunchTemplateName="karpenter.k8s.aws/1")
    (version,) = response["LaunchTemplateVersions"]
    data = version["LaunchTemplateData"]
    assert version["DefaultVersion"] is True
    assert data["UserData"] == USER_DATA
    assert data["MetadataOptions"] == {"HttpTokens": "required"}
    assert data["Monitoring"] == {"Enabled": False}
    assert data["NetworkInterfaces"] == [{"DeviceIndex": 0, "Groups": [kit.security_group_id()]}]
    assert "TagSpecifications" not in data


def test_template_name_is_unique(kit: FakeAwsClient) -> None:
    kit.create_template()
    with raises_code("InvalidLaunchTemplateName.AlreadyExistsException"):
        kit.create_template()


def test_pages_have_every_template_once(kit: FakeAwsClient) -> None:
    for number in range(23):
        kit.ec2.create_launch_template(LaunchTemplateName=f"lt-{number}", LaunchTemplateData={"KeyName": "k"})
    pages = kit.ec2.get_paginator("describe_launch_templates").paginate(PaginationConfig={"PageSize": 10})
    names = [template["LaunchTemplateName"] for page in pages for template in page["LaunchTemplates"]]
    assert sorted(names) == sorted(f"lt-{number}" for number in range(23))
    assert len(kit.ec2.describe_launch_templates()["LaunchTemplates"]) == 23


def test_templates_are_filtered_by_tag(kit: FakeAwsClient) -> None:
    specification = [{"ResourceType": "launch-template", "Tags": tag_list(cls="x")}]
    kit.ec2.create_launch_template(
        LaunchTemplateName="one", LaunchTemplateData={"KeyName": "k"}, TagSpecifications=specification
    )
    kit.create_template("two")
    found = kit.ec2.describe_launch_templates(Filters=[{"Name": "tag:cls", "Values": ["x"]}])["LaunchTemplates"]
    assert [template["LaunchTemplateName"] for template in found] == ["one"]


@pytest.mark.parametrize("call", ["describe_launch_templates", "delete_launch_template"])
@pytest.mark.parametrize(
    ("member", "value", "expected"),
    [
        ("LaunchTemplateName", "nothing", "InvalidLaunchTemplateName.NotFoundException"),
        ("LaunchTemplateId", "lt-0123456789abcdef0", "InvalidLaunchTemplateId.NotFound"),
        ("LaunchTemplateId", "lt-xyz", "InvalidLaunchTemplateId.Malformed"),
    ],
)
def test_missing_template_has_error_codes_for_name_and_id(
    kit: FakeAwsClient, call: str, member: str, value: str, expected: str
) -> None:
    request = {f"{member}s": [value]} if call.startswith("describe") else {member: value}
    with raises_code(expected):
        getattr(kit.ec2, call)(**request)


def test_deleted_template_releases_its_name(kit: FakeAwsClient) -> None:
    template_id = kit.create_template()
    deleted = kit.ec2.delete_launch_template(LaunchTemplateId=template_id)["LaunchTemplate"]
    assert deleted["LaunchTemplateName"] == "karpenter.k8s.aws/1"
    assert kit.create_template() != template_id


def test_new_version_inherits_from_its_source(kit: FakeAwsClient) -> None:
    template_id = kit.create_template()
    kit.ec2.create_launch_template_version(
        LaunchTemplateId=template_id, SourceVersion="1", LaunchTemplateData={"KeyName": "other"}
    )
    kit.ec2.modify_launch_template(LaunchTemplateId=template_id, DefaultVersion="2")
    (latest,) = kit.ec2.describe_launch_template_versions(LaunchTemplateId=template_id, Versions=["$Latest"])[
        "LaunchTemplateVersions"
    ]
    assert (latest["VersionNumber"], latest["DefaultVersion"]) == (2, True)
    assert latest["LaunchTemplateData"]["KeyName"] == "other"
    assert latest["LaunchTemplateData"]["UserData"] == USER_DATA
