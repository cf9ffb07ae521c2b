"""The act of scenarios that nothing befalls: with the deadlines that ship, which a busy machine does not use up."""

from tests.integration.acts import Act
from tests.scenarios.acts import CALM as SHORT

CALM = Act("calm", patient=SHORT.patient)
