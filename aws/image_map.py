"""Which of an EC2NodeClass's images an instance type boots: exactly one, by the type's own labels.

Strictly: an image that asks for a label is not for a type that lacks it. The first that fits in `status.amis` is taken.
"""

from collections.abc import Iterable, Mapping

from model.facts import Expression
from model.kinds.ec2nodeclass import ResolvedAmi
from model.requirements import Requirements


class ImageMap:
    """Built once per class; types with the same values of the keys that images ask for share an answer."""

    def __init__(self, amis: Iterable[ResolvedAmi]) -> None:
        self._images = [(ami.id, requirements_of(ami)) for ami in amis]
        self._keys = sorted({key for _, wanted in self._images for key in wanted})
        self._answers: dict[tuple[tuple[str, ...], ...], str] = {}

    def image_for(self, labels: Mapping[str, tuple[str, ...]]) -> str:
        """The image's id; empty when none fits."""
        marks = tuple(labels.get(key, ()) for key in self._keys)
        if marks not in self._answers:
            self._answers[marks] = self._first_fit(dict(zip(self._keys, marks, strict=True)))
        return self._answers[marks]

    def _first_fit(self, labels: Mapping[str, tuple[str, ...]]) -> str:
        described = Requirements.of_choices(labels)
        fits = (image for image, wanted in self._images if described.compatible_strictly(wanted))
        return next(fits, "")


def requirements_of(ami: ResolvedAmi) -> Requirements:
    return Requirements.of(
        Expression(key=one.key, operator=one.operator, values=one.values) for one in ami.requirements
    )
