"""Static validation of an EC2NodeClass: Karpenter's reasons, and the valid form in the message."""

import pytest

from tenure.aws.amifamily.families import AliasError, parameters_of
from tenure.aws.nodeclass.spec_validation import why_tags
from tests.support.aws.builders import SETTINGS, build_nodeclass


@pytest.mark.parametrize(
    ("alias", "expected"),
    [
        ("al2@latest", "al2023@latest"),
        ("al2023@a@b", "family@version"),
        ("al2023", "family@version"),
        ("ubuntu@latest", "family@version"),
        ("windows2022@v1", "windows2022@latest"),
        ("windows2025@latest", "1.35"),
    ],
)
def test_unsupported_alias_names_alternative(alias: str, expected: str) -> None:
    with pytest.raises(AliasError, match=expected):
        parameters_of(alias, "1.34", 34)


@pytest.mark.parametrize(
    ("keys", "named", "problem"),
    [
        (42, False, ""),
        (43, False, "spec.tags: 43 tags, expected at most 42: EC2 allows 50 for an instance, and Tenure adds 8"),
        (43, True, ""),
        (44, True, "spec.tags: 44 tags, expected at most 43: EC2 allows 50 for an instance, and Tenure adds 7"),
    ],
)
def test_tags_of_a_launch_fit_into_the_limit_of_ec2(keys: int, named: bool, problem: str) -> None:
    """With the tags of a NodeClaim that launches individually, and `Name`, which is added when the Node registers."""
    tags = {f"key-{number}": "" for number in range(keys - named)} | ({"Name": "mine"} if named else {})
    found = why_tags(build_nodeclass(tags=tags), SETTINGS)
    assert (found[1] if found else "") == problem
