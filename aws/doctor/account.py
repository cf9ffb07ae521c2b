"""Who the credentials belong to, and the cluster as EKS knows it."""

from typing import Final

from aws.client import AwsClients
from aws.cluster import Clusters
from aws.zonal_shift import ZonalShifts
from model.base import Value
from model.faults import BadInput, Fault, Forbidden, NotFound
from model.findings import Finding, advice, ok, problem, unknown

AREA: Final = "account"
OLDEST, NEWEST = 26, 36
"""Minor versions of Kubernetes that Karpenter's kinds are made for (reference 10.4)."""


class Caller(Value):
    account: str = ""
    arn: str = ""

    @property
    def partition(self) -> str:
        return self.arn.split(":")[1] if self.arn.count(":") >= 5 else "aws"

    @property
    def role(self) -> str:
        """The name of the assumed role, or of the user; empty when it cannot be told."""
        kind, _, rest = self.arn.rpartition(":")[2].partition("/")
        return rest.split("/")[0] if kind in ("assumed-role", "user", "role") else ""


async def check_caller(clients: AwsClients) -> tuple[Caller, list[Finding]]:
    """The caller; an empty one when AWS does not know the credentials."""
    try:
        answer = await clients.call(clients.sts.get_caller_identity)
    except Fault as fault:
        return Caller(), [
            problem(
                AREA, "credentials", fault.message, "give the role's credentials: environment, profile or pod identity"
            )
        ]
    caller = Caller(account=answer["Account"], arn=answer["Arn"])
    return caller, [ok(AREA, "credentials", f"{caller.arn} in {clients.region}")]


async def check_zones(zones: ZonalShifts) -> list[Finding]:
    """Nothing where the setting is off."""
    subject = "zonal shift"
    try:
        await zones.check()
        away = sorted(await zones.away())
    except (BadInput, Forbidden) as fault:
        return [problem(AREA, subject, fault.message, "see ENABLE_ZONAL_SHIFT, and arc-zonal-shift in deploy/iam")]
    except Fault as fault:
        return [unknown(AREA, subject, fault.message, "try again")]
    if away:
        todo = "nothing, if that is meant: the shift ends at its time, or when a person ends it"
        return [advice(AREA, subject, f"nothing is bought in {', '.join(away)}", todo)]
    return []


async def check_cluster(clusters: Clusters, name: str) -> list[Finding]:
    subject = f"EKS cluster {name}"
    try:
        facts = await clusters.facts()
    except NotFound as fault:
        return [problem(AREA, subject, fault.message, "set CLUSTER_NAME to its name, AWS_REGION to its region")]
    except Forbidden as fault:
        return [
            problem(AREA, subject, fault.message, "allow eks:DescribeCluster, or set CLUSTER_ENDPOINT and the rest")
        ]
    except Fault as fault:
        return [unknown(AREA, subject, fault.message, "try again")]
    missing = [
        word
        for word, value in (
            ("endpoint", facts.endpoint),
            ("certificate", facts.ca_bundle),
            ("Service range", facts.cidr),
        )
        if not value
    ]
    if missing:
        return [problem(AREA, subject, f"EKS does not tell its {', '.join(missing)}", "wait until it is ACTIVE")]
    if not OLDEST <= facts.minor <= NEWEST:
        said = f"Kubernetes {facts.version}; tried with 1.{OLDEST} to 1.{NEWEST}"
        return [problem(AREA, subject, said, "bring the cluster to a version in that range")]
    return [ok(AREA, subject, f"Kubernetes {facts.version}, {facts.endpoint}")]
