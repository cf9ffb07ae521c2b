"""CloudFormation stacks in moto."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from moto import mock_aws
from moto.cloudformation.utils import yaml_tag_constructor

REGION, ACCOUNT, CLUSTER = "eu-west-1", "123456789012", "shop"


@contextmanager
def mocked_aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Mock AWS, whatever endpoint and keys the environment has."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield


def client(service: Any) -> Any:
    return boto3.client(service, region_name=REGION)


def read_template(template: Path) -> dict[str, Any]:
    """The template with short forms such as `!Ref` written in full."""
    loader = type("Loader", (yaml.SafeLoader,), {})
    yaml.add_multi_constructor("", yaml_tag_constructor, Loader=loader)
    found: dict[str, Any] = yaml.load(template.read_text(), Loader=loader)
    return found


def create_stack(template: Path, **parameters: str) -> dict[str, str]:
    """Create a stack from a template, and return its outputs."""
    formation, name = client("cloudformation"), template.stem
    stack_parameters = {"ClusterName": CLUSTER, **parameters}
    formation.create_stack(
        StackName=name,
        TemplateBody=template.read_text(),
        Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in stack_parameters.items()],
        Capabilities=["CAPABILITY_IAM"],
    )
    [made] = formation.describe_stacks(StackName=name)["Stacks"]
    assert made["StackStatus"] == "CREATE_COMPLETE"
    return {one["OutputKey"]: one["OutputValue"] for one in made["Outputs"]}
