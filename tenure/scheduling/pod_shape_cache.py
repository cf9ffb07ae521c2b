"""Shapes and validation errors of pods by UID, until the pod changes: a pod can have thousands of terms."""

from functools import lru_cache

from tenure.model.facts import PodFact
from tenure.scheduling.packing.pod_requirements import PodShape, build_pod_shape
from tenure.scheduling.pods import validation_error


@lru_cache(maxsize=1 << 14)
def _intern_shape(shape: PodShape) -> PodShape:
    """Equal shapes share one object, so that a plan does not compare them again."""
    return shape


class PodShapeCache:
    def __init__(self) -> None:
        self._shapes: dict[str, PodShape] = {}
        self._errors: dict[str, str] = {}

    def shape(self, pod: PodFact) -> PodShape:
        known = self._shapes.get(pod.uid)
        if known is None:
            known = self._shapes[pod.uid] = _intern_shape(build_pod_shape(pod))
        return known

    def validation_error(self, pod: PodFact) -> str:
        """Why the pod cannot be planned; empty if it can."""
        known = self._errors.get(pod.uid)
        if known is None:
            # An unplannable pod may have no shape; it has no terms.
            constraints = self.shape(pod).constraints if pod.required_terms else None
            known = self._errors[pod.uid] = validation_error(pod, constraints)
        return known

    def discard(self, uid: str) -> None:
        self._shapes.pop(uid, None)
        self._errors.pop(uid, None)

    def discard_prefix(self, prefix: str) -> None:
        """Discard the pods whose UID starts with this text."""
        for uid in [uid for uid in {**self._shapes, **self._errors} if uid.startswith(prefix)]:
            self.discard(uid)
