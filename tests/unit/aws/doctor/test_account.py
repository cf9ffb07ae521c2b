"""AWS account checks of the doctor."""

import pytest

from tenure.aws.doctor.account import class_of


@pytest.mark.parametrize(
    ("instance_type", "named"),
    [("m5.large", "Standard"), ("c7gn.metal", "Standard"), ("i4i.xlarge", "Standard"), ("g5.xlarge", "G and VT"),
     ("vt1.3xlarge", "G and VT"), ("p4d.24xlarge", "P"), ("inf2.xlarge", "Inf"), ("trn1.2xlarge", "Trn"),
     ("x2idn.16xlarge", "X"), ("f1.2xlarge", "F"), ("dl1.24xlarge", "DL"), ("u-6tb1.56xlarge", ""),
     ("hpc7a.96xlarge", "")],
)  # fmt: skip
def test_instance_type_counts_against_quota_of_its_class(instance_type: str, named: str) -> None:
    assert class_of(instance_type) == named
