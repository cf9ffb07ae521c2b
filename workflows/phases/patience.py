"""How long an activity stays with a node whose pods leave, before it comes back in any case."""

from datetime import datetime, timedelta

PATIENCE = timedelta(minutes=5)
AT_LEAST = timedelta(seconds=1)


def patience_of(now: datetime, *moments: datetime | None) -> timedelta:
    """Until the first of these moments, within reason."""
    until = min((one for one in moments if one), default=None)
    return min(PATIENCE, max(AT_LEAST, until - now)) if until else PATIENCE
