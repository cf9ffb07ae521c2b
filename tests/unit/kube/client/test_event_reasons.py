"""Events have Karpenter's reasons, types and phrases, so that alert rules for Karpenter match.

The fake of `Events` checks the phrase of every event that a unit test publishes.
"""

import pytest

from tenure.kube.client.event_reasons import EVENT_REASONS
from tests.support.fakes.karpenter_events import KARPENTER_EVENTS, assert_phrase_of_karpenter


@pytest.mark.parametrize("reason", KARPENTER_EVENTS)
def test_karpenter_event_has_the_same_type_and_phrase(reason: str) -> None:
    event, (kind, _) = EVENT_REASONS[reason], KARPENTER_EVENTS[reason]
    assert ("Warning" if event.warning else "Normal") == kind
    assert_phrase_of_karpenter(reason, event.example)
