"""AWS account checks of the doctor."""

from types import SimpleNamespace
from typing import cast

import pytest

from deploy.commands import associate_role
from tenure.aws.client.client import AwsClients
from tenure.aws.doctor.account import check_caller, class_of
from tenure.model.errors import Fault
from tests.support.cli.remedies import find_faulty_remedies


@pytest.mark.parametrize(
    ("instance_type", "named"),
    [("m5.large", "Standard"), ("c7gn.metal", "Standard"), ("i4i.xlarge", "Standard"), ("g5.xlarge", "G and VT"),
     ("vt1.3xlarge", "G and VT"), ("p4d.24xlarge", "P"), ("inf2.xlarge", "Inf"), ("trn1.2xlarge", "Trn"),
     ("x2idn.16xlarge", "X"), ("f1.2xlarge", "F"), ("dl1.24xlarge", "DL"), ("u-6tb1.56xlarge", ""),
     ("hpc7a.96xlarge", "")],
)  # fmt: skip
def test_instance_type_counts_against_quota_of_its_class(instance_type: str, named: str) -> None:
    assert class_of(instance_type) == named


async def test_missing_credentials_are_corrected_by_an_association_of_the_role() -> None:
    async def call(method: object, **_: str) -> None:
        raise Fault("Unable to locate credentials")

    clients = SimpleNamespace(call=call, region="eu-west-1", sts=SimpleNamespace(get_caller_identity=None))
    caller, (found,) = await check_caller(cast(AwsClients, clients), "prod")
    assert not caller.arn and found.level == "problem"
    assert found.todo.startswith(f"{associate_role('prod', region='eu-west-1')}, ")
    assert find_faulty_remedies([found]) == []
