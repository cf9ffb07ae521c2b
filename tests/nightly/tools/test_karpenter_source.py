"""Tenure and its AWS stand-in against the source of Karpenter's AWS provider: examples, methods of AWS clients, and
values of the chart.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from botocore import xform_name

from tenure.sandbox.spec import CRDS
from tests.adapters.apis.record_karpenter import MODULE, VERSION, read_examples, verdicts_with_crds
from tests.adapters.sandbox.aws import test_karpenter_calls
from tests.nightly.deploy.test_karpenter_values import KARPENTER_VALUES
from tests.support.sandbox.go_modules import unpack_module

UNUSED: Final = {"GetRole", "TagInstanceProfile"}
"""Methods of the client interfaces that no package calls."""
WITHOUT_DEFAULT: Final = {"affinity.podAffinity"}
"""Values that the chart uses, but whose default is not in values.yaml."""
ONLY_IN_TESTS: Final = {"SendMessage"}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_module(MODULE, VERSION, tmp_path_factory.mktemp("karpenter"))


@pytest.mark.timeout(600)
def test_examples_have_the_same_result_with_both_crds(module: Path) -> None:
    examples = read_examples(module / "examples")
    assert {"NodePool", "EC2NodeClass"} == {one["kind"] for one in examples.values()} and len(examples) > 30
    expected = verdicts_with_crds(module / "pkg" / "apis" / "crds", examples)
    assert verdicts_with_crds(CRDS, examples) == expected and any(expected.values())


def test_page_maps_each_value_of_karpenters_chart(module: Path) -> None:
    values = list_values(yaml.safe_load((module / "charts" / "karpenter" / "values.yaml").read_text()))
    listed = set(KARPENTER_VALUES.split())
    assert len(values) > 60
    assert [one for one in values if not any(f"{one}.".startswith(f"{name}.") for name in listed)] == []
    assert {name for name in listed if not any(f"{one}.".startswith(f"{name}.") for one in values)} == WITHOUT_DEFAULT


def list_values(values: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Paths of all values that are no maps, or empty ones."""
    found = []
    for name, value in values.items():
        nested = value if isinstance(value, Mapping) else {}
        found += list_values(nested, f"{prefix}{name}.") or [f"{prefix}{name}"]
    return found


def test_contract_test_calls_each_method_of_the_clients(module: Path) -> None:
    methods = set(re.findall(r"^\t([A-Z]\w+)\(context", (module / "pkg" / "aws" / "sdk.go").read_text(), flags=re.M))
    called = set(re.findall(r"\w+", Path(test_karpenter_calls.__file__).read_text()))
    assert len(methods) > 30
    assert {one for one in methods if xform_name(one) not in called} == UNUSED | ONLY_IN_TESTS
