"""SCHEDULER_CONFIG: the accepted form, and errors that name field, value and expected form."""

import json
from typing import Any

import pytest

from tenure.apis.scheduler_config import EXAMPLE, MAX_CONSTRAINTS, normalize, parse_default_constraints

ZONE = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
PATH = "podTopologySpread.defaultConstraints"


def text(*constraints: Any) -> str:
    return json.dumps({"podTopologySpread": {"defaultConstraints": constraints}})


@pytest.mark.parametrize("empty", ["", "  \n", "{}", "podTopologySpread:", text(), "# nothing"])
def test_empty_setting_has_no_constraints(empty: str) -> None:
    assert parse_default_constraints(empty) == [] and normalize(empty) == ""


def test_every_field_is_accepted() -> None:
    full = {**ZONE, "minDomains": 2, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    hostname = {"maxSkew": 3, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    assert parse_default_constraints(text(full, hostname)) == [full, hostname]
    assert len(parse_default_constraints(EXAMPLE)) == 1


def test_yaml_and_json_of_the_same_meaning_are_equal() -> None:
    yaml = """
podTopologySpread:
  defaultConstraints:
  - {topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, maxSkew: 1}
"""
    assert normalize(yaml) == normalize(text(ZONE)) == normalize(normalize(yaml))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("[]", "document: expected an object with the field podTopologySpread"),
        ("just text", "document: expected an object"),
        ("kind: KubeSchedulerConfiguration", "'kind': unknown field, expected podTopologySpread"),
        ("podTopologySpread: {defaultingType: List}", "podTopologySpread.'defaultingType': unknown field"),
        ("podTopologySpread: {defaultConstraints: {}}", f"{PATH}: expected a list"),
        (
            text(*({**ZONE, "topologyKey": f"key-{one}"} for one in range(MAX_CONSTRAINTS + 1))),
            "at most 16 constraints",
        ),
        (text(3), f"{PATH}[0]: expected an object"),
        (text({}), f"{PATH}[0].maxSkew: missing"),
        (text({**ZONE, "maxSkew": 0}), f"{PATH}[0].maxSkew: '0', expected a number above 0"),
        (text({**ZONE, "maxSkew": True}), f"{PATH}[0].maxSkew: 'True', expected a number"),
        (text({**ZONE, "maxSkew": 2**31}), f"{PATH}[0].maxSkew"),
        (text(ZONE, {**ZONE, "topologyKey": "not a key"}), f"{PATH}[1].topologyKey: 'not a key', expected a label key"),
        (text({**ZONE, "whenUnsatisfiable": "Never"}), "'Never', expected DoNotSchedule or ScheduleAnyway"),
        (text({**ZONE, "nodeTaintsPolicy": ["Honor"]}), f"{PATH}[0].nodeTaintsPolicy"),
        (text({**ZONE, "labelSelector": {}}), f"{PATH}[0].labelSelector: forbidden"),
        (text({**ZONE, "matchLabelKeys": ["app"]}), f"{PATH}[0].matchLabelKeys: forbidden"),
        (text({**ZONE, "weight": 1}), f"{PATH}[0].'weight': unknown field, expected one of maxSkew"),
        (
            text({**ZONE, "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 2}),
            f"{PATH}[0].minDomains: expected only",
        ),
        (text(ZONE, {**ZONE, "maxSkew": 2}), f"{PATH}[1]: another constraint has the same topologyKey"),
    ],
)
def test_invalid_configuration_names_the_field(config: str, expected: str) -> None:
    with pytest.raises(ValueError) as error:
        parse_default_constraints(config)
    assert expected in str(error.value), error.value
    assert len(str(error.value)) < 500
