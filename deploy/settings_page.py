"""Writes docs/settings.md: each setting and each gate with its default, from `settings.py`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pydantic.fields import FieldInfo

from deploy.pages import WRITTEN, table
from settings import AWS_GATES, GATES, Settings, written

FILE: Final = Path(__file__).parents[1] / "docs" / "settings.md"
OURS: Final = frozenset(
    {
        "node_cost",
        "nominate_pods",
        "log_format",
        "launch_timeout",
        "registration_timeout",
        "initialization_timeout",
        "drain_timeout",
        "termination_timeout",
        "not_ready_grace",
        "prometheus_url",
        "activity_slots",
    }
)
"""Beside Temporal's; the others have Karpenter's names and meanings (reference 1.14)."""
GATES_ARE_FOR: Final = {
    "NodeRepair": "[replaces nodes that are broken](repair.md)",
    "ReservedCapacity": "[capacity that is paid for already](reservations.md)",
    "SpotToSpotConsolidation": "a spot node may be replaced by a cheaper spot node",
    "NodeOverlay": "[what you know of instance types](overlays.md)",
    "StaticCapacity": "[pools of a fixed size](static-pools.md)",
    "CapacityBuffer": "[room for pods that are yet to come](buffers.md)",
    "NodeClassCEL": "[amounts by instance type](node-classes.md#amounts-by-instance-type); of `AWS_FEATURE_GATES`",
}


def text() -> str:
    """The page."""
    settings = table(("Variable", "Default", "", "Meaning"), list(_settings()))
    switches = [(f"`{name}`", "on" if on else "off", GATES_ARE_FOR[name]) for name, on in (GATES | AWS_GATES).items()]
    return f"""{WRITTEN.format(source="settings.py")}
# Settings of the worker

Each is an environment variable, and a flag of the same name in lower case with hyphens: `CLUSTER_NAME=demo` or
`--cluster-name demo`. Flags win. Durations are Go's: `10s`, `1m30s`. What is marked K has Karpenter's name and meaning.

{settings}
## Feature gates

A name that is not known is an error. The defaults are Karpenter's.

{table(("Gate", "Default", "For"), switches)}"""


def _settings() -> Iterator[tuple[str, ...]]:
    for name, field in Settings.model_fields.items():
        karpenters = name not in OURS and not name.startswith("temporal_")
        yield f"`{name.upper()}`", _default(field), "K" if karpenters else "", field.description or ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    if isinstance(field.default, dict):
        return "[see below](#feature-gates)"
    said = re.sub(r"(?<=[hm])0[ms]", "", written(field.default))
    return f"`{said}`" if said else ""
