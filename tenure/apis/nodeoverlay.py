"""NodeOverlay (`karpenter.sh/v1alpha1`): adjusted prices and additional resources of instance types. Alpha."""

from typing import Annotated, Final

from tenure.apis import labels
from tenure.apis.crd_schema import INT32, MAX_LABEL_KEY, QUALIFIED_NAME, Crd, Rule
from tenure.apis.meta import Condition, KubeModel, KubeObject, KubeStatus, LabelOperator, LabelValues, Quantities

PRICE: Final = r"^\d+(\.\d+)?$"
ADJUSTMENT: Final = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$"

_KEY_RULES: Final = (
    Rule(
        "self in ['karpenter.sh/capacity-type', 'karpenter.sh/nodepool'] "
        "|| !self.split('/')[0].endsWith('karpenter.sh')",
        "label domain karpenter.sh is restricted: expected karpenter.sh/capacity-type or karpenter.sh/nodepool",
    ),
    Rule(
        "self != 'kubernetes.io/hostname'",
        "label kubernetes.io/hostname is restricted, because the node sets it at startup: use another label",
    ),
)


class OverlayRequirement(KubeModel):
    """A requirement for a label of the instance type, of its offering, or of the NodePool's nodes."""

    key: Annotated[str, Crd({"maxLength": MAX_LABEL_KEY, "pattern": QUALIFIED_NAME}, _KEY_RULES, required=True)]
    """Key of the label."""
    operator: LabelOperator
    values: LabelValues = ()


_REQUIREMENT_RULES: Final = (
    Rule(
        "self.all(r, !(r.operator in ['In', 'NotIn']) || (has(r.values) && size(r.values) > 0))",
        "requirements with operator 'In' or 'NotIn' must have a value defined; to match any or no value, "
        "use operator: Exists or DoesNotExist",
    ),
    Rule(
        "self.all(r, !(r.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(r.values) && size(r.values) == 1 "
        "&& int(r.values[0]) >= 0))",
        "requirements with operator 'Gt', 'Lt', 'Gte' or 'Lte' must have a single non-negative integer value, "
        "e.g. values: ['4']",
    ),
)


class NodeOverlaySpec(KubeModel):
    """The selected offerings, and their price and resources."""

    requirements: Annotated[
        tuple[OverlayRequirement, ...], Crd({"maxItems": 100}, _REQUIREMENT_RULES, required=True)
    ] = ()
    """Instance types and offerings, selected by well-known labels and by labels of the NodePool's template. Empty list:
    all."""
    price: Annotated[str | None, Crd({"pattern": PRICE})] = None
    """Price in US dollars per hour, such as '0.25'."""
    price_adjustment: Annotated[str | None, Crd({"pattern": ADJUSTMENT})] = None
    """Change of the price: US dollars per hour such as '+0.05' or '-0.1', or a share such as '+10%' or '-25%'. The
    price is never negative."""
    capacity: Annotated[
        Quantities,
        Crd(
            rules=(
                Rule(
                    "self.all(x, !(x in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
                    "cpu, memory, ephemeral-storage and pods are restricted: remove them from 'capacity', which adds "
                    "only extended resources",
                ),
            )
        ),
    ] = {}
    """Additional extended resources of the nodes, such as smarter-devices/fuse: 1."""
    weight: Annotated[int | None, Crd({**INT32, "minimum": 1, "maximum": 10000})] = None
    """Of overlays that set the same value, the one with the largest weight applies; equal weights are a conflict.
    Unset: 0."""


SPEC_RULES: Final = (
    Rule(
        "!has(self.price) || !has(self.priceAdjustment)",
        "cannot set both 'price' and 'priceAdjustment': remove one of them",
    ),
)


class NodeOverlayStatus(KubeStatus):
    """Whether the overlay is in effect."""

    conditions: tuple[Condition, ...] = ()
    """Whether the overlay is in effect, and why not."""


class NodeOverlay(KubeObject):
    """Adjusts the price of instance types, and adds extended resources."""

    api_version: str = labels.NODEOVERLAY_API_VERSION
    kind: str = "NodeOverlay"
    spec: Annotated[NodeOverlaySpec, Crd(rules=SPEC_RULES, required=True)] = NodeOverlaySpec()
    status: NodeOverlayStatus = NodeOverlayStatus()

    @property
    def weight(self) -> int:
        return self.spec.weight or 0
