"""The search attributes, in one list: registered at start, set by workflows, queried by people.

SQL visibility has room for 10 Keyword and 3 each of Bool, Datetime and Double per namespace; this is the whole budget.
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
"""US dollars an hour, as the node was launched."""

KEYWORDS = (NODE_POOL, PHASE, BLOCKED_BY, INSTANCE_TYPE, ZONE, CAPACITY_TYPE, NODE_NAME, INSTANCE_ID)
ALL: dict[str, str] = {
    **{key.name: "Keyword" for key in KEYWORDS},
    **{key.name: "Bool" for key in (OVERDUE, PAUSED)},
    **{key.name: "Datetime" for key in (PHASE_SINCE, DEADLINE)},
    PRICE.name: "Double",
}
"""Name to type, as `temporal operator search-attribute create` takes them."""
SQL_LIMITS = {"Keyword": 10, "Bool": 3, "Datetime": 3, "Double": 3}
"""Of each type in one namespace where visibility is kept in SQL."""
