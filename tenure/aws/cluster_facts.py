"""The facts about the cluster that nodes need to join."""

from tenure.model.base import Value


class ClusterFacts(Value):
    name: str
    version: str = ""
    """Major and minor."""
    endpoint: str = ""
    ca_bundle: str = ""
    cidr: str = ""
    dns: str = ""

    @property
    def minor(self) -> int:
        """Zero when the version is not known."""
        digits = self.version.partition(".")[2]
        return int(digits) if digits.isdigit() else 0
