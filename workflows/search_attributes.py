"""All search attributes: registered at start, set by workflows, and used in queries.

SQL visibility allows 10 Keyword and 3 each of Bool, Datetime and Double per namespace, which limits this list.
"""

from temporalio.common import SearchAttributeKey

NODE_POOL = SearchAttributeKey.for_keyword("TenureNodePool")
PHASE = SearchAttributeKey.for_keyword("TenurePhase")
BLOCKED_BY = SearchAttributeKey.for_keyword("TenureBlockedBy")
INSTANCE_TYPE = SearchAttributeKey.for_keyword("TenureInstanceType")
ZONE = SearchAttributeKey.for_keyword("TenureZone")
CAPACITY_TYPE = SearchAttributeKey.for_keyword("TenureCapacityType")
NODE_NAME = SearchAttributeKey.for_keyword("TenureNodeName")
INSTANCE_ID = SearchAttributeKey.for_keyword("TenureInstanceId")
OVERDUE = SearchAttributeKey.for_bool("TenureOverdue")
PAUSED = SearchAttributeKey.for_bool("TenurePaused")
PHASE_SINCE = SearchAttributeKey.for_datetime("TenurePhaseSince")
DEADLINE = SearchAttributeKey.for_datetime("TenureDeadline")
PRICE = SearchAttributeKey.for_float("TenurePrice")
"""US dollars an hour at launch."""

KEYWORDS = (NODE_POOL, PHASE, BLOCKED_BY, INSTANCE_TYPE, ZONE, CAPACITY_TYPE, NODE_NAME, INSTANCE_ID)
ALL: dict[str, str] = {
    **{key.name: "Keyword" for key in KEYWORDS},
    **{key.name: "Bool" for key in (OVERDUE, PAUSED)},
    **{key.name: "Datetime" for key in (PHASE_SINCE, DEADLINE)},
    PRICE.name: "Double",
}
"""Type by name, as for `temporal operator search-attribute create`."""
SQL_LIMITS = {"Keyword": 10, "Bool": 3, "Datetime": 3, "Double": 3}
"""Attributes of each type per namespace with SQL visibility."""
