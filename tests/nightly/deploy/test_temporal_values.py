"""The values for Temporal's own chart: its names are those that the chart has, and what they say is what Tenure needs.

The chart itself is not here: what its templates read was looked up by name, and is the table of names below.
"""

from collections.abc import Iterator
from typing import Any, Final

import yaml

from tests.support.paths import ROOT

VALUES: Final[dict[str, Any]] = yaml.safe_load((ROOT / "deploy" / "charts" / "temporal-values.yaml").read_text())
UNMANAGED: Final = {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"}
SERVICES: Final = ("frontend", "history", "matching", "worker")
STORE: Final = (
    *("createDatabase", "manageSchema", "pluginName", "driverName", "databaseName", "user"),
    *("connectAddr", "connectProtocol", "existingSecret", "secretKey", "tls.enabled", "tls.enableHostVerification"),
    *("maxConns", "maxIdleConns", "maxConnLifetime"),
)
CHARTS_NAMES: Final = {
    *(f"server.config.persistence.{one}" for one in ("defaultStore", "visibilityStore", "numHistoryShards")),
    *(
        f"server.config.persistence.datastores.{store}.sql.{one}"
        for store in ("default", "visibility")
        for one in STORE
    ),
    *(f"server.config.namespaces.{one}" for one in ("create", "namespace")),
    *(f"server.{service}.{one}" for service in SERVICES for one in ("replicaCount", "podDisruptionBudget")),
    *(f"{part}.affinity" for part in ("server", "web", "admintools")),
}
"""Those of chart 1.x that are used: look one up in its templates before it is added."""


def test_every_name_was_looked_up_in_the_chart() -> None:
    assert set(paths_of(VALUES)) == CHARTS_NAMES


def paths_of(values: dict[str, Any], above: str = "") -> Iterator[str]:
    """Down to lists, and to what Kubernetes defines."""
    for name, value in values.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and name not in ("affinity", "podDisruptionBudget"):
            yield from paths_of(value, f"{path}.")
        else:
            yield path


def test_each_service_has_a_budget_and_the_replicas_without_which_the_chart_makes_none() -> None:
    for name in SERVICES:
        service = VALUES["server"][name]
        assert service["replicaCount"] > service["podDisruptionBudget"]["maxUnavailable"] > 0


def test_temporals_values_keep_it_off_managed_nodes_and_histories_for_long() -> None:
    server = VALUES["server"]
    for part in (server, VALUES["web"], VALUES["admintools"]):
        required = part["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert [UNMANAGED in term["matchExpressions"] for term in required["nodeSelectorTerms"]] == [True]
    stores = server["config"]["persistence"]["datastores"]
    names = {name: one["sql"]["databaseName"] for name, one in stores.items()}
    assert names == {"default": "temporal", "visibility": "temporal_visibility"}
    assert not [one for one in stores.values() if "password" in one["sql"]]
    assert [one["retention"] for one in server["config"]["namespaces"]["namespace"]] == ["30d"]
