"""Numbers of property test examples, relative to `--property-depth`."""

from hypothesis import settings

FULL_DEPTH = 100
"""Examples of the profile `full` in `tests/conftest.py`."""


def max_examples(number: int, fast: int | None = None) -> settings:
    """Settings with `number` examples at full depth; at a lower depth `fast`, by default a proportional share."""
    profile = settings.default
    assert profile is not None
    if fast is not None and profile.max_examples < FULL_DEPTH:
        return settings(max_examples=fast)
    return settings(max_examples=max(5, number * profile.max_examples // FULL_DEPTH))
