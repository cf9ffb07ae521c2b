"""Values of the chart that would render an invalid manifest, or that the worker rejects, are errors of Helm."""

import copy
import json
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.support.paths import ROOT

CHART = ROOT / "deploy" / "charts" / "tenure"
REQUIRED = {
    "image": {"repository": "registry.example/tenure"},
    "settings": {"CLUSTER_NAME": "prod", "AWS_REGION": "eu-west-1", "TEMPORAL_ADDRESS": "temporal.example.com:7233"},
}


def merge(values: Any, more: dict[str, Any]) -> Any:
    """As by Helm."""
    for key, value in more.items():
        values[key] = merge(values.get(key) or {}, value) if isinstance(value, dict) else value
    return values


def find_rejected(more: dict[str, Any]) -> list[str]:
    """The rejected fields of the default values with `more`."""
    values = merge(merge(yaml.safe_load((CHART / "values.yaml").read_text()), copy.deepcopy(REQUIRED)), more)
    schema = json.loads((CHART / "values.schema.json").read_text())
    return [".".join(map(str, one.absolute_path)) for one in Draft7Validator(schema).iter_errors(values)]


@pytest.mark.parametrize(
    ("values", "rejected"),
    [
        ({}, []),
        ({"temporal": {"tls": {"secret": "temporal", "cert": "", "key": ""}}}, []),
        ({"temporal": {"tls": {"secret": "temporal", "key": ""}}}, ["temporal.tls.key"]),
        ({"temporal": {"apiKey": {"secret": "temporal", "key": ""}}}, ["temporal.apiKey.key"]),
        (
            {"nameOverride": "nodes", "fullnameOverride": "nodes-2", "podDisruptionBudget": {"maxUnavailable": "50%"}},
            [],
        ),
        ({"nameOverride": "My_App"}, ["nameOverride"]),
        ({"fullnameOverride": "2.tenure"}, ["fullnameOverride"]),
        ({"podDisruptionBudget": {"maxUnavailable": "150%"}}, ["podDisruptionBudget.maxUnavailable"]),
        ({"settings": {"PROMETHEUS_URL": "http://prometheus.monitoring:9090"}}, []),
        ({"settings": {"PROMETHEUS_URL": "prometheus.monitoring:9090"}}, ["settings.PROMETHEUS_URL"]),
        ({"settings": {"CLUSTER_ENDPOINT": "ABC.eks.amazonaws.com"}}, ["settings.CLUSTER_ENDPOINT"]),
    ],
)
def test_invalid_value_is_rejected_by_its_field(values: dict[str, Any], rejected: list[str]) -> None:
    assert find_rejected(values) == rejected
