"""What nodes of a NodePool are made from now, as far as a change of it is a roll-out.

`policy/drift.py` has the reasons by which nodes drift from it, and those that concern single nodes."""

from model import labels
from model.hashing import HASH_VERSION, nodepool_hash
from model.kinds import EC2NodeClass, NodeClaim, NodePool
from model.rollouts import Image, Target, digest


def target_of(pool: NodePool, node_class: EC2NodeClass | None) -> Target | None:
    """None while the class is not resolved as it is now, since what it shows then is what it was.

    Raises DurationError where the NodePool's template holds a text that is no duration."""
    if node_class is None or node_class.metadata.deleting or not node_class.status.amis:
        return None
    ready, stamps = node_class.condition(labels.READY), node_class.metadata.annotations
    if ready is None or ready.observed_generation != node_class.metadata.generation:
        return None
    if stamps.get(labels.NODECLASS_HASH_VERSION) != HASH_VERSION:
        return None
    images = (
        Image(id=one.id, wants=" ".join(sorted(digest(need.to_object()) for need in one.requirements)))
        for one in node_class.status.amis
    )
    return Target(
        pool=nodepool_hash(pool),
        requirements=digest(sorted(digest(one.to_object()) for one in pool.spec.template.spec.requirements)),
        node_class=node_class.name,
        class_hash=stamps.get(labels.NODECLASS_HASH, ""),
        images=tuple(sorted(images, key=lambda one: (one.wants, one.id))),
        groups=tuple(sorted(one.id for one in node_class.status.security_groups)),
    )


def is_made_of(claim: NodeClaim, target: Target) -> bool:
    """By the stamps that it was made with. What is not stamped, or by another version, tells nothing against it."""
    stamps = claim.metadata.annotations
    for value, version, wanted in (
        (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION, target.pool),
        (labels.NODECLASS_HASH, labels.NODECLASS_HASH_VERSION, target.class_hash),
    ):
        if stamps.get(version) == HASH_VERSION and stamps.get(value, wanted) != wanted:
            return False
    image = claim.status.image_id
    return not image or image in {one.id for one in target.images}
