"""NodeOverlay (`karpenter.sh/v1alpha1`): actual prices and additional resources of instance types. Alpha."""

from typing import Annotated, Final

from tenure.apis import labels
from tenure.apis.crd_schema import INT32, QUALIFIED_NAME, Crd, Rule
from tenure.apis.meta import Condition, KubeModel, KubeObject, KubeStatus, LabelOperator, LabelValues, Quantities

PRICE: Final = r"^\d+(\.\d+)?$"
ADJUSTMENT: Final = r"^(([+-]{1}(\d*\.?\d+))|(\+{1}\d*\.?\d+%)|(^(-\d{1,2}(\.\d+)?%)$)|(-100%))$"

_KEY_RULES: Final = (
    Rule(
        "self in ['karpenter.sh/capacity-type', 'karpenter.sh/nodepool'] "
        "|| !self.split('/')[0].endsWith('karpenter.sh')",
        "the label domain karpenter.sh is reserved: of it, write karpenter.sh/capacity-type or karpenter.sh/nodepool",
    ),
    Rule(
        "self != 'kubernetes.io/hostname'",
        "kubernetes.io/hostname is set when the node starts: leave it out, and choose by another label",
    ),
)


class OverlayRequirement(KubeModel):
    """A condition on a label of the instance type, of its offering, or of the NodePool's nodes."""

    key: Annotated[str, Crd({"maxLength": 316, "pattern": QUALIFIED_NAME}, _KEY_RULES, required=True)]
    """The label."""
    operator: LabelOperator
    values: LabelValues = ()


_REQUIREMENT_RULES: Final = (
    Rule(
        "self.all(r, !(r.operator in ['In', 'NotIn']) || (has(r.values) && size(r.values) > 0))",
        "operators In and NotIn need at least one entry in 'values'; to ask only whether the label is there, "
        "write operator: Exists or DoesNotExist",
    ),
    Rule(
        "self.all(r, !(r.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || (has(r.values) && size(r.values) == 1 "
        "&& int(r.values[0]) >= 0))",
        "operators Gt, Lt, Gte and Lte compare with one whole number that is not negative: "
        "write exactly one, as text, such as values: ['4']",
    ),
)


class NodeOverlaySpec(KubeModel):
    """The selected offerings, and their price and resources."""

    requirements: Annotated[
        tuple[OverlayRequirement, ...], Crd({"maxItems": 100}, _REQUIREMENT_RULES, required=True)
    ] = ()
    """Which instance types and offerings, by labels that nodes are known by and by labels of the NodePool's template;
    an empty list: all."""
    price: Annotated[str | None, Crd({"pattern": PRICE})] = None
    """Price in US dollars an hour, such as '0.25'."""
    price_adjustment: Annotated[str | None, Crd({"pattern": ADJUSTMENT})] = None
    """By how much its price changes: dollars an hour such as '+0.05' or '-0.1', or a share such as '+10%' or '-25%';
    never below nothing."""
    capacity: Annotated[
        Quantities,
        Crd(
            rules=(
                Rule(
                    "self.all(x, !(x in ['cpu', 'memory', 'ephemeral-storage', 'pods']))",
                    "cpu, memory, ephemeral-storage and pods are what the instance type has: remove them from "
                    "'capacity', which adds extended resources alone",
                ),
            )
        ),
    ] = {}
    """Extended resources that the nodes have in addition to known ones, such as smarter-devices/fuse: 1."""
    weight: Annotated[int | None, Crd({**INT32, "minimum": 1, "maximum": 10000})] = None
    """Of two overlays for the same thing the one with more weight counts; with the same weight they are in conflict.
    Unset: 0."""


SPEC_RULES: Final = (
    Rule(
        "!has(self.price) || !has(self.priceAdjustment)",
        "a price is set or adjusted: remove 'price' or 'priceAdjustment'",
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
