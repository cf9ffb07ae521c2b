"""How a machine joins: the kubelet settings that affect its Node, from any format of user data."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError


class UserDataError(ValueError):
    """The boot would fail; the message has the problem of the user data."""


class Taint(BaseModel):
    """A taint of the Node at registration."""

    model_config = ConfigDict(frozen=True)

    key: str
    value: str = ""
    effect: str

    def to_object(self) -> dict[str, str]:
        return {"key": self.key, "effect": self.effect} | ({"value": self.value} if self.value else {})


class Join(BaseModel):
    """Settings of a kubelet. Reserved amounts and thresholds are unparsed; None or empty: defaults of the image."""

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
    """The image reserves memory by max-pods, not by the limit of the network interfaces."""
    data_device: str = "/dev/xvda"
    system: Literal["linux", "windows"] = "linux"
    os_image: str = "Amazon Linux 2023"


def parse_pairs(text: str, separator: str = "=") -> dict[str, str]:
    """Parse `a=b,c=d`. Raises UserDataError for a part without the separator."""
    pairs: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, found, value = part.partition(separator)
        if not found:
            raise UserDataError(f"{part!r} has no {separator!r}")
        pairs[key] = value
    return pairs


def parse_taint(text: str) -> Taint:
    """Parse `key=value:Effect` or `key:Effect`, the format of --register-with-taints. Raises UserDataError."""
    pair, found, effect = text.strip().rpartition(":")
    if not found:
        raise UserDataError(f"taint {text!r} has no effect")
    key, _, value = pair.partition("=")
    return Taint(key=key, value=value, effect=effect)


def parse_taints(text: str) -> tuple[Taint, ...]:
    return tuple(parse_taint(part) for part in text.split(",") if part.strip())


def taints_of(objects: Iterable[Any]) -> tuple[Taint, ...]:
    """Parse taints from objects. Raises UserDataError."""
    try:
        return tuple(Taint.model_validate(found) for found in objects)
    except ValidationError as error:
        raise UserDataError(f"registerWithTaints: {error}") from None


def texts(amounts: Mapping[str, Any] | None) -> dict[str, str]:
    """Convert amounts to text, because YAML and TOML may have numbers."""
    return {str(key): str(value) for key, value in (amounts or {}).items()}
