"""Images of an EC2NodeClass that were taken back: what the annotation `tenure.sh/image-pin` says, and while it holds.

The user's spec stays as it is. A pin takes the place of the images that it names, and of no others: what the selectors
find later is used at once. It is void when the selectors are written anew, when its time is over, or when a person
takes the annotation away.
"""

from datetime import datetime

from pydantic import ValidationError

from model.base import Message
from model.kinds import EC2NodeClass
from model.labels import IMAGE_PIN
from model.rollouts import digest


class ImagePin(Message):
    images: dict[str, str]
    """Those that failed, and for each the image that is used instead."""
    terms: str
    """Digest of the selectors that it was made for."""
    by: str
    reason: str
    since: datetime
    until: datetime


def pin_in_force(node_class: EC2NodeClass, now: datetime) -> ImagePin | None:
    """None without one, or with one that is void or cannot be read."""
    written = node_class.metadata.annotations.get(IMAGE_PIN, "")
    try:
        pin = ImagePin.model_validate_json(written) if written else None
    except ValidationError:
        return None
    if pin is None or now >= pin.until or pin.terms != terms_of(node_class):
        return None
    return pin


def terms_of(node_class: EC2NodeClass) -> str:
    """Digest of `spec.amiSelectorTerms`."""
    return digest([term.to_object() for term in node_class.spec.ami_selector_terms])


def added(pin: ImagePin | None, images: dict[str, str], **said: object) -> ImagePin:
    """With what was pinned before and still is: an image that is used instead may have failed in its turn."""
    before = {bad: images.get(good, good) for bad, good in (pin.images if pin else {}).items()}
    return ImagePin.model_validate({"images": {**before, **images}, **said})
