"""An image pin is active until its end and while the AMI selectors are those it was made for."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.apis.labels import IMAGE_PIN
from tenure.model.rollout import ImagePin, active_image_pin, add_pinned_images, ami_selector_digest

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
LATEST = [{"alias": "al2023@latest"}]


def node_class(written: str = "", *, terms: Any = LATEST, **spec: Any) -> EC2NodeClass:
    meta = {"name": "default", "annotations": {IMAGE_PIN: written} if written else {}}
    return EC2NodeClass.from_object({"metadata": meta, "spec": {"amiSelectorTerms": terms, **spec}})


def pin(images: dict[str, str] | None = None) -> ImagePin:
    return ImagePin(
        images=images or {"ami-bad": "ami-good"},
        terms=ami_selector_digest(node_class()),
        by="ann",
        reason="it fails",
        since=NOW,
        until=NOW + timedelta(days=1),
    )


def test_pin_is_read_as_it_was_written() -> None:
    assert active_image_pin(node_class(pin().model_dump_json()), NOW) == pin()


def test_pin_stays_active_after_an_unrelated_change_of_the_spec() -> None:
    assert active_image_pin(node_class(pin().model_dump_json(), tags={"a": "b"}), NOW) == pin()


@pytest.mark.parametrize(
    ("found", "at"),
    [
        (node_class(), NOW),
        (node_class("{"), NOW),
        (node_class('{"images": {}}'), NOW),
        (node_class(pin().model_dump_json().replace("Z", "")), NOW),
        (node_class(pin().model_dump_json(), terms=[{"id": "ami-bad"}]), NOW),
        (node_class(pin().model_dump_json()), NOW + timedelta(days=1)),
    ],
    ids=["no annotation", "invalid JSON", "incomplete", "times without a zone", "other selectors", "expired"],
)
def test_pin_is_not_active(found: EC2NodeClass, at: datetime) -> None:
    assert active_image_pin(found, at) is None


def test_earlier_pins_are_kept_and_follow_the_older_image() -> None:
    fields = pin().model_dump(exclude={"images"})
    assert add_pinned_images(pin(), {"ami-next": "ami-good"}, **fields).images == {
        "ami-bad": "ami-good",
        "ami-next": "ami-good",
    }
    assert add_pinned_images(pin(), {"ami-good": "ami-old"}, **fields).images == {
        "ami-bad": "ami-old",
        "ami-good": "ami-old",
    }
