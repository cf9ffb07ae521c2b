"""What all kinds share: the base of every object read from the API server, its metadata, conditions, references.

These models are lenient readers: the API server has validated what it holds, and an object that an older
version stored must still parse. Unknown fields are kept, and what was not there is not written.
"""

from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer
from pydantic.alias_generators import to_camel

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
        """Read what the API server returned (a dict, or any mapping). Raises pydantic.ValidationError."""
        return cls.model_validate(found)

    def to_object(self) -> dict[str, Any]:
        """The object as JSON values, camelCase: equal to what was read, when nothing was changed."""
        return self.model_dump(mode="json", by_alias=True)


class OwnerReference(KubeModel):
    """The object that this one goes with."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(KubeModel):
    """Metadata of any object; absent maps and lists read as empty."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None

    @property
    def deleting(self) -> bool:
        return self.deletion_timestamp is not None


class Condition(KubeModel):
    """One status condition; `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    observed_generation: int = 0

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
    """A taint of a Node."""

    key: str
    value: str = ""
    effect: str
    time_added: datetime | None = None

    def matches(self, other: "Taint") -> bool:
        """Same key and effect: Kubernetes allows one taint of each such pair."""
        return self.key == other.key and self.effect == other.effect


class Requirement(KubeModel):
    """A condition on a node label; `operator` is one of In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    min_values: int | None = None
    """At least so many distinct values of the key must remain to choose from (1 to 50)."""


class NodeClassRef(KubeModel):
    """The NodeClass by group, kind and name."""

    group: str = ""
    kind: str = ""
    name: str = ""


class KubeObject(KubeModel):
    """An object with metadata and status conditions."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return ()

    def condition(self, condition_type: str) -> Condition | None:
        """The condition of this type, or None."""
        return next((one for one in self.conditions if one.type == condition_type), None)

    def is_true(self, condition_type: str) -> bool:
        found = self.condition(condition_type)
        return found is not None and found.is_true
