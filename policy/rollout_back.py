"""The way back of a roll-out: which images to take again, where the image alone has changed."""

from model.rollouts import RolloutState


def images_back(state: RolloutState) -> tuple[dict[str, str], str]:
    """By image that is in force now the last good one; with none, why there is no way back."""
    if state.good is None or state.target is None:
        return {}, "it is not known what ran well before"
    changed = state.target.changed_from(state.good)
    if changed != ("the image",):
        return {}, f"not the image alone has changed, but {' and '.join(changed) or 'nothing'}"
    good = {one.wants: one.id for one in state.good.images}
    back = {one.id: good[one.wants] for one in state.target.images if good.get(one.wants, one.id) != one.id}
    return back, "" if back else "there was no image for these nodes before"
