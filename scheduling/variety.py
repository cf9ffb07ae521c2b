"""minValues: how many different values of a label the instance types of a NodeClaim have to have (reference 2.13)."""

from typing import Final

from model.requirements import Requirements
from scheduling.typetable import Indices, TypeTable

STRICT: Final = "Strict"
BEST_EFFORT: Final = "BestEffort"


def missing_variety(table: TypeTable, requirements: Requirements, rows: Indices) -> str:
    """The first minValues that these types do not reach, in words; empty when all are reached."""
    for key, one in requirements.items():
        if one.min_values is not None and (found := table.distinct(key, rows)) < one.min_values:
            return f"{key} needs {one.min_values} different values and {found} fit"
    return ""
