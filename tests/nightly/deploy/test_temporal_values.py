"""The values for Temporal's own chart: their names exist in the chart, and they meet Tenure's requirements.

The chart itself is not in this repository. The names below were looked up in its templates.
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
"""Names of chart 1.x. Look up a new name in the chart's templates before you add it."""


def test_every_value_is_a_known_name_of_the_chart() -> None:
    assert set(paths_of(VALUES)) == CHARTS_NAMES


def paths_of(values: dict[str, Any], above: str = "") -> Iterator[str]:
    """Dotted paths down to lists and to objects that Kubernetes defines."""
    for name, value in values.items():
        path = f"{above}{name}"
        if isinstance(value, dict) and name not in ("affinity", "podDisruptionBudget"):
            yield from paths_of(value, f"{path}.")
        else:
            yield path


def test_each_service_has_a_budget_and_enough_replicas_for_it() -> None:
    for name in SERVICES:
        service = VALUES["server"][name]
        assert service["replicaCount"] > service["podDisruptionBudget"]["maxUnavailable"] > 0


def test_temporal_avoids_managed_nodes_and_keeps_histories_30_days() -> None:
    server = VALUES["server"]
    for part in (server, VALUES["web"], VALUES["admintools"]):
        required = part["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert [UNMANAGED in term["matchExpressions"] for term in required["nodeSelectorTerms"]] == [True]
    stores = server["config"]["persistence"]["datastores"]
    names = {name: one["sql"]["databaseName"] for name, one in stores.items()}
    assert names == {"default": "temporal", "visibility": "temporal_visibility"}
    assert not [one for one in stores.values() if "password" in one["sql"]]
    assert [one["retention"] for one in server["config"]["namespaces"]["namespace"]] == ["30d"]
