"""Base models of API objects: metadata, conditions, taints, requirements and references.

The models parse leniently, because the API server validates objects and an object that an older version stored must
still parse. Unknown fields are kept, and absent fields are not written.
"""

import re
from datetime import datetime
from typing import Annotated, Any, Final, Self

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer
from pydantic.alias_generators import to_camel

from tenure.apis.crd_schema import ATOMIC, INT64, MAX_LABEL_KEY, QUALIFIED_NAME, Crd, not_empty

Quantities = dict[str, str | int]
"""A Kubernetes ResourceList as written; `tenure.apis.quantity.parse_resources` converts it to integers."""

_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def is_object_name(name: str) -> bool:
    """Whether the API server may have an object with this name. It rejects reads of other names with an error."""
    return _OBJECT_NAME.fullmatch(name) is not None


class KubeModel(BaseModel):
    """Part of a Kubernetes object: frozen, serialized in camelCase, with unknown fields and without unset fields."""

    model_config = ConfigDict(
        frozen=True, extra="allow", alias_generator=to_camel, populate_by_name=True, serialize_by_alias=True
    )

    @model_serializer(mode="wrap")
    def _write_only_what_is_set(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        unset = type(self).model_fields.keys() - self.model_fields_set
        for name in unset:
            field = type(self).model_fields[name]
            written.pop(name, None)
            written.pop(field.serialization_alias or name, None)
        return written

    @classmethod
    def from_object(cls, found: Any) -> Self:
        """Parse an object of the API server (a dict, or any mapping). Raises pydantic.ValidationError."""
        return cls.model_validate(found)

    def to_object(self) -> dict[str, Any]:
        """The object as JSON values in camelCase; equal to the parsed input."""
        return self.model_dump(mode="json", by_alias=True)


class ObjectMeta(KubeModel):
    """The metadata fields that Tenure uses; absent maps and lists are empty."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None

    @property
    def is_deleting(self) -> bool:
        return self.deletion_timestamp is not None


class Condition(KubeModel):
    """One condition of the object's health or progress."""

    type: Annotated[
        str,
        Crd(
            {
                "maxLength": 316,
                "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
                r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            },
            required=True,
        ),
    ]
    """Type of the condition."""
    status: Annotated[str, Crd({"enum": ["True", "False", "Unknown"]}, required=True)]
    """Status of the condition."""
    reason: Annotated[
        str,
        Crd({"minLength": 1, "maxLength": 1024, "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}, required=True),
    ] = ""
    """Machine-readable reason, one word."""
    message: Annotated[str, Crd({"maxLength": 32768}, required=True)] = ""
    """Human-readable details."""
    last_transition_time: Annotated[datetime | None, Crd(required=True)] = None
    """When 'status' last changed."""
    observed_generation: Annotated[int, Crd({**INT64, "minimum": 0})] = 0
    """Generation of the object that the condition describes."""

    @property
    def is_true(self) -> bool:
        return self.status == "True"

    @property
    def is_false(self) -> bool:
        return self.status == "False"

    @property
    def is_unknown(self) -> bool:
        return not self.is_true and not self.is_false


class Taint(KubeModel):
    """Keeps pods away from a node unless they tolerate it."""

    key: Annotated[str, Crd({"minLength": 1, "pattern": QUALIFIED_NAME}, required=True)]
    """Key of the taint."""
    value: Annotated[str, Crd({"pattern": QUALIFIED_NAME})] = ""
    """Value of the taint; omit it for none."""
    effect: Annotated[str, Crd({"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}, required=True)]
    """Effect on pods that do not tolerate the taint."""
    time_added: datetime | None = None
    """When the taint was added; only set for NoExecute."""

    def matches(self, other: "Taint") -> bool:
        """Whether key and effect are equal; Kubernetes allows one taint per key and effect."""
        return self.key == other.key and self.effect == other.effect


LabelOperator = Annotated[
    str,
    Crd(
        {"enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]},
        required=True,
        doc="Relation of the label to 'values'.",
    ),
]
LabelValues = Annotated[
    tuple[str, ...],
    Crd(ATOMIC, doc="In, NotIn: a list of values; Gt, Lt, Gte, Lte: one whole number; Exists, DoesNotExist: empty."),
]


class Requirement(KubeModel):
    """A requirement for a label of the node, and for the flexibility of its values."""

    key: Annotated[str, Crd({"maxLength": MAX_LABEL_KEY, "pattern": QUALIFIED_NAME}, required=True)]
    """Key of the label."""
    operator: LabelOperator
    values: LabelValues = ()
    min_values: Annotated[int | None, Crd({"minimum": 1, "maximum": 50})] = None
    """Minimum number of different values among the possible instance types. Alpha."""


class NodeClassRef(KubeModel):
    """Reference to the NodeClass that configures the instances."""

    group: Annotated[
        str,
        Crd({"pattern": r"^[^/]*$"}, not_empty("group may not be empty: expected karpenter.k8s.aws"), required=True),
    ] = ""
    """API group of the NodeClass, without a version."""
    kind: Annotated[str, Crd(rules=not_empty("kind may not be empty: expected EC2NodeClass"), required=True)] = ""
    """Kind of the NodeClass."""
    name: Annotated[
        str,
        Crd(
            rules=not_empty("name may not be empty: expected the name of an EC2NodeClass, e.g. default"), required=True
        ),
    ] = ""
    """Name of the NodeClass."""


class KubeStatus(KubeModel):
    conditions: tuple[Condition, ...] = ()


class KubeObject(KubeModel):
    """An object with metadata and status conditions."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    status: KubeStatus = KubeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return self.status.conditions

    def condition(self, condition_type: str) -> Condition | None:
        """The condition of this type, or None."""
        return next((one for one in self.conditions if one.type == condition_type), None)

    def is_true(self, condition_type: str) -> bool:
        found = self.condition(condition_type)
        return found is not None and found.is_true
