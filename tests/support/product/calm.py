"""The act of scenarios that nothing befalls: with the deadlines that ship, which a busy machine does not use up."""

from tests.scenarios.acts import CALM as SHORT
from tests.support.product.acts import Act

CALM = Act("calm", patient=SHORT.patient)
