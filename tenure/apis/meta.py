"""Base of every API object: metadata, conditions, references.

These models are lenient readers: the API server has validated its objects, and an object that an older version stored
must still parse. Unknown fields are kept, and absent fields are not written.
"""

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer
from pydantic.alias_generators import to_camel

from tenure.apis.crd_schema import ATOMIC, INT64, QUALIFIED_NAME, Crd, not_empty

Quantities = dict[str, str | int]
"""A Kubernetes ResourceList as written; `model.quantity.parse_resources` makes integers of it."""


class KubeModel(BaseModel):
    """Part of a Kubernetes object: frozen, camelCase outside, unknown fields kept, unset fields never written."""

    model_config = ConfigDict(
        frozen=True,
        extra="allow",
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
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
        """The object as JSON values, camelCase: equal to the input if unchanged."""
        return self.model_dump(mode="json", by_alias=True)


class ObjectMeta(KubeModel):
    """The used metadata of any object; absent maps and lists read as empty."""

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
    """Whether it holds."""
    reason: Annotated[
        str,
        Crd({"minLength": 1, "maxLength": 1024, "pattern": r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}, required=True),
    ] = ""
    """Why, in one word for programs."""
    message: Annotated[str, Crd({"maxLength": 32768}, required=True)] = ""
    """Human-readable details."""
    last_transition_time: Annotated[datetime | None, Crd(required=True)] = None
    """When 'status' last changed."""
    observed_generation: Annotated[int, Crd({**INT64, "minimum": 0})] = 0
    """The generation of the object that this speaks of."""

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
    """The taint's key."""
    value: Annotated[str, Crd({"pattern": QUALIFIED_NAME})] = ""
    """The taint's value; leave it out for none."""
    effect: Annotated[str, Crd({"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}, required=True)]
    """Effect on pods that do not tolerate the taint."""
    time_added: datetime | None = None
    """When it was added; written for NoExecute alone."""

    def matches(self, other: "Taint") -> bool:
        """Same key and effect: Kubernetes allows one taint of each such pair."""
        return self.key == other.key and self.effect == other.effect


LabelOperator = Annotated[
    str,
    Crd(
        {"enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]},
        required=True,
        doc="How the label relates to 'values'.",
    ),
]
LabelValues = Annotated[
    tuple[str, ...],
    Crd(ATOMIC, doc="For In and NotIn any of them; for Gt, Lt, Gte and Lte one whole number; otherwise none."),
]


class Requirement(KubeModel):
    """A condition on a label of the node, and on how many of its values must stay possible."""

    key: Annotated[str, Crd({"maxLength": 316, "pattern": QUALIFIED_NAME}, required=True)]
    """The label."""
    operator: LabelOperator
    values: LabelValues = ()
    min_values: Annotated[int | None, Crd({"minimum": 1, "maximum": 50})] = None
    """At least so many different values must remain to choose from. Alpha."""


class NodeClassRef(KubeModel):
    """Names the NodeClass that says how instances are made."""

    group: Annotated[
        str, Crd({"pattern": r"^[^/]*$"}, not_empty("group may not be empty: write karpenter.k8s.aws"), required=True)
    ] = ""
    """API group of the NodeClass, without a version."""
    kind: Annotated[str, Crd(rules=not_empty("kind may not be empty: write EC2NodeClass"), required=True)] = ""
    """Kind of the NodeClass."""
    name: Annotated[
        str,
        Crd(
            rules=not_empty("name may not be empty: write the name of an EC2NodeClass, such as default"), required=True
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
