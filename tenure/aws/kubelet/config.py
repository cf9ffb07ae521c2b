"""The keys of `spec.kubelet` that Tenure uses, parsed from its open map.

Invalid values are ignored here; `validation.py` reports them.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from tenure.apis.quantity import QuantityError, parse
from tenure.model.base import Value

_PERCENTAGE: Final = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?%", re.ASCII)


def parse_percentage(text: str) -> float | None:
    """The number before `%`; None for text that the kubelet does not read, such as `5 %`."""
    return float(text[:-1]) if _PERCENTAGE.fullmatch(text) else None


def is_quantity(text: str) -> bool:
    try:
        parse(text)
    except QuantityError:
        return False
    return True


def _parse_count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _parse_texts(value: Any) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()} if isinstance(value, Mapping) else {}


def _parse_amounts(value: Any) -> dict[str, str]:
    """The entries that are quantities. Expressions are evaluated or reported elsewhere."""
    return {key: text for key, text in _parse_texts(value).items() if is_quantity(text) and parse(text).nano >= 0}


Count = Annotated[int | None, BeforeValidator(_parse_count)]
Texts = Annotated[dict[str, str], BeforeValidator(_parse_texts)]
Amounts = Annotated[dict[str, str], BeforeValidator(_parse_amounts)]
Addresses = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: tuple(map(str, value)) if isinstance(value, list | tuple) else ())
]
Flag = Annotated[bool | None, BeforeValidator(lambda value: value if isinstance(value, bool) else None)]


class Kubelet(Value):
    """Amounts are valid quantities, as written. Thresholds are any text."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=False, extra="ignore")

    max_pods: Count = None
    pods_per_core: Count = None
    cluster_dns: Addresses = Field((), alias="clusterDNS")
    system_reserved: Amounts = {}
    kube_reserved: Amounts = {}
    eviction_hard: Texts = {}
    eviction_soft: Texts = {}
    eviction_soft_grace_period: Texts = {}
    eviction_max_pod_grace_period: Count = None
    image_gc_high: Count = Field(None, alias="imageGCHighThresholdPercent")
    image_gc_low: Count = Field(None, alias="imageGCLowThresholdPercent")
    cpu_cfs_quota: Flag = Field(None, alias="cpuCFSQuota")

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None) -> Self:
        return cls.model_validate(raw or {})


MANAGED: Final = frozenset(field.alias or name for name, field in Kubelet.model_fields.items())
"""Names of the keys in `spec.kubelet`."""
