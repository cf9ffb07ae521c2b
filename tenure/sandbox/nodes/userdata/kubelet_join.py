"""How a machine joins: the kubelet's settings that matter for its Node, whatever dialect of user data they came in."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError


class UserDataError(ValueError):
    """The boot would fail here; the message has the problem of the user data, for the node's log."""


class Taint(BaseModel):
    """A taint that the kubelet registers its Node with."""

    model_config = ConfigDict(frozen=True)

    key: str
    value: str = ""
    effect: str

    def to_object(self) -> dict[str, str]:
        return {"key": self.key, "effect": self.effect} | ({"value": self.value} if self.value else {})


class Join(BaseModel):
    """A kubelet's settings. Reserved amounts and thresholds are texts as written; None or empty: the image's own."""

    model_config = ConfigDict(frozen=True)

    cluster: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    max_pods: int | None = None
    pods_per_core: int | None = None
    kube_reserved: dict[str, str] = {}
    system_reserved: dict[str, str] = {}
    eviction_hard: dict[str, str] = {}
    raid0: bool = False
    reserves_by_max_pods: bool = False
    """The image reserves memory for as many pods as may run, not for as many as the network interfaces allow."""
    data_device: str = "/dev/xvda"
    system: Literal["linux", "windows"] = "linux"
    os_image: str = "Amazon Linux 2023"


def parse_pairs(text: str, separator: str = "=") -> dict[str, str]:
    """`a=b,c=d` as a dictionary. Raises UserDataError for a part without the separator."""
    pairs: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, found, value = part.partition(separator)
        if not found:
            raise UserDataError(f"{part!r} has no {separator!r}")
        pairs[key] = value
    return pairs


def parse_taint(text: str) -> Taint:
    """`key=value:Effect` or `key:Effect`, as kubelet's --register-with-taints has it. Raises UserDataError."""
    pair, found, effect = text.strip().rpartition(":")
    if not found:
        raise UserDataError(f"taint {text!r} has no effect")
    key, _, value = pair.partition("=")
    return Taint(key=key, value=value, effect=effect)


def parse_taints(text: str) -> tuple[Taint, ...]:
    return tuple(parse_taint(part) for part in text.split(",") if part.strip())


def taints_of(objects: Iterable[Any]) -> tuple[Taint, ...]:
    """Taints written as objects. Raises UserDataError."""
    try:
        return tuple(Taint.model_validate(found) for found in objects)
    except ValidationError as error:
        raise UserDataError(f"registerWithTaints: {error}") from None


def texts(amounts: Mapping[str, Any] | None) -> dict[str, str]:
    """YAML and TOML write some amounts as numbers; all become text."""
    return {str(key): str(value) for key, value in (amounts or {}).items()}
