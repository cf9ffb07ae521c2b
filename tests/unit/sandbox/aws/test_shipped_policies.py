"""The policies in deploy/iam: short enough for IAM, and neither more nor less than what the worker's code calls."""

import json
import re
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name

from tenure.sandbox.aws.iam.policy import shipped_policies
from tenure.sandbox.aws.iam.service_rules import RIGHTS
from tests.support.paths import ROOT

MANAGED_POLICY_CHARACTERS = 6144
SERVICES = ("ec2", "iam", "ssm", "eks", "sqs", "pricing", "arc-zonal-shift")
# Asked by AWS itself of those who make a profile with tags, or give one a role.
IMPLIED = {"iam:TagInstanceProfile", "iam:PassRole"}
LONGEST = shipped_policies(cluster="c" * 100, region="ap-southeast-2", account="123456789012", partition="aws-us-gov")


@pytest.mark.parametrize("name", LONGEST)
def test_each_fits_into_a_managed_policy(name: str) -> None:
    """IAM does not count white space. 100 characters is the longest name of an EKS cluster."""
    text = re.sub(r"\s", "", json.dumps(LONGEST[name]))
    assert len(text) <= MANAGED_POLICY_CHARACTERS
    assert "${" not in text


def test_statements_have_names_of_their_own() -> None:
    sids = [statement["Sid"] for policy in LONGEST.values() for statement in policy["Statement"]]
    assert len(sids) == len(set(sids)) == 20


def granted() -> set[str]:
    found: set[str] = set()
    for policy in LONGEST.values():
        for statement in policy["Statement"]:
            actions: Any = statement["Action"]
            found |= {actions} if isinstance(actions, str) else set(actions)
    return found


def called() -> set[str]:
    """The actions whose boto3 methods the worker's adapters name. The doctor runs under another's credentials."""
    session: Any = botocore.session.get_session()
    methods = {
        xform_name(operation): f"{service}:{operation}"
        for service in SERVICES
        for operation in session.get_service_model(service).operation_names
    }
    files = [file for file in Path(ROOT, "tenure", "aws").rglob("*.py") if "doctor" not in file.parts]
    names = {name for file in files for name in re.findall(r"\.([a-z0-9_]+)\b", file.read_text())}
    found = (methods[name].partition(":") for name in names & set(methods))
    return {f"{service}:{RIGHTS.get((service, operation), operation)}" for service, _, operation in found}


def test_what_the_code_calls_is_granted_and_nothing_else() -> None:
    assert called() <= granted()
    assert granted() - called() <= IMPLIED


def test_no_action_is_granted_with_a_wildcard() -> None:
    assert [action for action in granted() if "*" in action] == []
