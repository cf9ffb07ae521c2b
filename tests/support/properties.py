"""The number of examples of a property test, relative to the depth that `--property-depth` selects."""

from hypothesis import settings

FULL_DEPTH = 100
"""Examples of the profile `full` in `tests/conftest.py`."""


def max_examples(number: int) -> settings:
    """Settings with `number` examples at full depth, and a proportional share at a lower depth."""
    profile = settings.default
    assert profile is not None
    return settings(max_examples=max(5, number * profile.max_examples // FULL_DEPTH))
