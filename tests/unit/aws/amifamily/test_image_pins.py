"""Image pins after a rollback: replaced images, their status, and the end of a pin."""

from datetime import UTC, datetime, timedelta
from typing import Any

from tenure.apis import labels
from tenure.apis.ec2nodeclass import EC2NodeClass
from tenure.aws.amifamily.images import Images
from tenure.aws.nodeclass.status import Parts
from tenure.model.rollout import ImagePin, ami_selector_digest
from tests.support.aws.builders import build_nodeclass
from tests.unit.aws.amifamily.image_cloud import (
    LATEST,
    build_images,
    published_cloud,
    resolve_images,
)


def image_pin(**images: str) -> ImagePin:
    """`ami_1="ami-0"` replaces ami-1 by ami-0."""
    now = datetime.now(UTC)
    return ImagePin(
        images={bad.replace("_", "-"): good for bad, good in images.items()},
        terms=ami_selector_digest(build_nodeclass()),
        by="ann",
        reason="its kubelet dies",
        since=now,
        until=now + timedelta(days=1),
    )


async def test_pin_replaces_images_with_same_requirements() -> None:
    cloud = published_cloud()
    cloud.image("ami-old", created="2025-01-01")
    one = build_images(cloud)
    before = await resolve_images(one, LATEST)
    used, missing = await one.apply_pin(image_pin(ami_1="ami-old", ami_77="ami-0"), before)
    assert [image.id for image in used] == ["ami-3", "ami-2", "ami-old", "ami-0"]
    assert [image.requirements for image in used] == [image.requirements for image in before]
    assert missing == []


def status_parts(one: Images) -> Parts:
    others: Any = None
    return Parts(images=one, networks=others, profiles=others, placement=others, reservations=others)


def annotated_nodeclass(written: str, **more: Any) -> EC2NodeClass:
    raw = build_nodeclass(**more).to_object()
    return EC2NodeClass.from_object(
        {**raw, "metadata": {**raw["metadata"], "annotations": {labels.IMAGE_PIN: written}}}
    )


async def test_pinned_nodeclass_reports_used_images_and_reason() -> None:
    cloud = published_cloud()
    cloud.image("ami-old", created="2025-01-01")
    part = await status_parts(build_images(cloud)).resolve_amis(
        annotated_nodeclass(image_pin(ami_1="ami-old").model_dump_json())
    )
    assert [one["id"] for one in part.status["amis"]] == ["ami-3", "ami-2", "ami-old", "ami-0"]
    condition = part.conditions[-1]
    assert (condition.type, condition.status, condition.reason) == ("ImagesPinned", "True", "RolledBack")
    assert condition.message.startswith("ami-old instead of ami-1; rolled back by ann at ")
    assert "its kubelet dies" in condition.message


async def test_missing_pinned_image_is_reported() -> None:
    part = await status_parts(build_images(published_cloud())).resolve_amis(
        annotated_nodeclass(image_pin(ami_1="ami-old").model_dump_json())
    )
    assert [one["id"] for one in part.status["amis"]] == ["ami-3", "ami-2", "ami-1", "ami-0"]
    condition = part.conditions[-1]
    assert (condition.status, condition.reason) == ("False", "ImageGone")
    assert condition.message.startswith("replacement ami-old no longer exists; until ")


async def test_pin_ends_when_selectors_find_other_images() -> None:
    cloud = published_cloud()
    one = build_images(cloud)
    part = await status_parts(one).resolve_amis(annotated_nodeclass(image_pin(ami_77="ami-0").model_dump_json()))
    assert [each.type for each in part.conditions] == ["AMIsReady"]
    there = [{"type": "ImagesPinned", "status": "True", "reason": "RolledBack"}]
    was = EC2NodeClass.from_object({**build_nodeclass().to_object(), "status": {"conditions": there}})
    part = await status_parts(one).resolve_amis(was)
    assert (part.conditions[-1].type, part.conditions[-1].status) == ("ImagesPinned", "")
