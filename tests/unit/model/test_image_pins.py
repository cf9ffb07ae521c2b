"""A pin of images holds for the selectors that it was made for, and for its time."""

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


def test_it_is_read_as_it_was_written() -> None:
    assert active_image_pin(node_class(pin().model_dump_json()), NOW) == pin()


def test_another_change_of_the_spec_does_not_touch_it() -> None:
    assert active_image_pin(node_class(pin().model_dump_json(), tags={"a": "b"}), NOW) == pin()


@pytest.mark.parametrize(
    ("found", "at"),
    [
        (node_class(), NOW),
        (node_class("{"), NOW),
        (node_class('{"images": {}}'), NOW),
        (node_class(pin().model_dump_json(), terms=[{"id": "ami-bad"}]), NOW),
        (node_class(pin().model_dump_json()), NOW + timedelta(days=1)),
    ],
    ids=["none", "no JSON", "half of one", "other selectors", "its time is over"],
)
def test_a_pin_that_is_void(found: EC2NodeClass, at: datetime) -> None:
    assert active_image_pin(found, at) is None


def test_what_was_pinned_before_stays_so_and_goes_further_back() -> None:
    fields = pin().model_dump(exclude={"images"})
    assert add_pinned_images(pin(), {"ami-next": "ami-good"}, **fields).images == {
        "ami-bad": "ami-good",
        "ami-next": "ami-good",
    }
    assert add_pinned_images(pin(), {"ami-good": "ami-old"}, **fields).images == {
        "ami-bad": "ami-old",
        "ami-good": "ami-old",
    }
