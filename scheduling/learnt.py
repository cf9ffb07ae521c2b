"""NodeClaims as what was learnt of machines of their kind says they will be."""

from model.facts import ClaimFact
from model.labels import INSTANCE_TYPE, NODECLASS_HASH
from model.learnt import Learnt
from model.resources import MEMORY


def claim_as_learnt(claim: ClaimFact, learnt: Learnt) -> ClaimFact:
    """A claim whose Node is not there yet, with no more memory than such machines have shown since it was launched."""
    if claim.registered or not claim.launched:
        return claim
    spec_hash = claim.annotations.get(NODECLASS_HASH, "")
    shown = learnt.memory(claim.image_id, claim.labels.get(INSTANCE_TYPE, ""), spec_hash)
    missing = 0 if shown is None else claim.capacity.get(MEMORY, 0) - shown
    if missing <= 0:
        return claim
    left = max(0, claim.allocatable.get(MEMORY, 0) - missing)
    return claim.model_copy(update={"allocatable": {**claim.allocatable, MEMORY: left}})
