"""The selector terms of an EC2NodeClass: subnets, security groups, reservations, placement group, images.

Terms of a list are ORed, the fields of a term ANDed. For subnets, groups and reservations, the rules that forbid other
fields next to `id` or `name` apply to the list: it passes when at least one term is clean. For images they apply to
each term. Karpenter's CRD does the same. `aws/` uses `id` before `name` before `tags`.
"""

from typing import Annotated, Any, Final

from pydantic import Field

from tenure.apis.crd_schema import Crd, Rule
from tenure.apis.meta import KubeModel

MAX_TERMS: Final[dict[str, Any]] = {"maxItems": 30}
_TAGS: Final = Crd(
    {"maxProperties": 20},
    (
        Rule(
            "self.all(k, k != '' && self[k] != '')",
            "a tag needs a key and a value: write the value, or '*' for any value",
        ),
    ),
    doc="Tags the resource has; the value '*' means any value.",
)
_ALIAS_FAMILIES: Final = "['al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025']"


class SubnetTerm(KubeModel):
    """Selects subnets."""

    tags: Annotated[dict[str, str], _TAGS] = {}
    id: Annotated[str, Crd({"pattern": "subnet-[0-9a-z]+"})] = ""
    """The subnet's id."""


SUBNET_RULES: Final = (
    Rule(
        "size(self) > 0", "subnetSelectorTerms needs at least one term: write tags or an id, such as - id: subnet-0123"
    ),
    Rule(
        "self.all(t, has(t.tags) || has(t.id))",
        "each term of subnetSelectorTerms needs 'tags' or 'id': fill the empty term or remove it",
    ),
    Rule(
        "size(self) == 0 || self.exists(t, !(has(t.id) && has(t.tags)))",
        "in subnetSelectorTerms an 'id' stands alone: remove 'tags' there, or write them as a term of their own",
    ),
)


class SecurityGroupTerm(KubeModel):
    """Selects security groups."""

    tags: Annotated[dict[str, str], _TAGS] = {}
    id: Annotated[str, Crd({"pattern": "sg-[0-9a-z]+"})] = ""
    """The group's id."""
    name: str = ""
    """The group's name; not its Name tag."""


SECURITY_GROUP_RULES: Final = (
    Rule(
        "size(self) > 0",
        "securityGroupSelectorTerms needs at least one term: write tags, a name or an id, such as - id: sg-0123",
    ),
    Rule(
        "self.all(t, has(t.tags) || has(t.id) || has(t.name))",
        "each term of securityGroupSelectorTerms needs 'tags', 'id' or 'name': fill the empty term or remove it",
    ),
    Rule(
        "size(self) == 0 || self.exists(t, !(has(t.id) && (has(t.tags) || has(t.name))))",
        "in securityGroupSelectorTerms an 'id' stands alone: remove the other fields from that term, "
        "or write them as a term of their own",
    ),
    Rule(
        "size(self) == 0 || self.exists(t, !(has(t.name) && (has(t.tags) || has(t.id))))",
        "in securityGroupSelectorTerms a 'name' stands alone: remove the other fields from that term, "
        "or write them as a term of their own",
    ),
)


class CapacityReservationTerm(KubeModel):
    """Selects capacity reservations."""

    tags: Annotated[dict[str, str], _TAGS] = {}
    id: Annotated[str, Crd({"pattern": "^cr-[0-9a-z]+$"})] = ""
    """The reservation's id."""
    owner_id: Annotated[str, Field(alias="ownerID"), Crd({"pattern": "^[0-9]{12}$"})] = ""
    """The account that owns the reservation."""
    instance_match_criteria: Annotated[str, Crd({"enum": ["open", "targeted"]})] = ""
    """Which launches the reservation takes."""


CAPACITY_RESERVATION_RULES: Final = (
    Rule(
        "size(self) > 0",
        "capacityReservationSelectorTerms may not be an empty list: write a term, or leave the field out",
    ),
    Rule(
        "self.all(t, has(t.tags) || has(t.id) || has(t.instanceMatchCriteria))",
        "each term of capacityReservationSelectorTerms needs 'tags', 'id' or 'instanceMatchCriteria': "
        "add one of them or remove the term",
    ),
    Rule(
        "size(self) == 0 || self.exists(t, !(has(t.id) && (has(t.tags) || has(t.ownerID) "
        "|| has(t.instanceMatchCriteria))))",
        "in capacityReservationSelectorTerms an 'id' stands alone: remove the other fields from that term, "
        "or write them as a term of their own",
    ),
)


class PlacementGroupSelector(KubeModel):
    """Selects one placement group, in which all instances are placed."""

    name: Annotated[str, Crd({"minLength": 1})] = ""
    """The group's name."""
    id: Annotated[str, Crd({"pattern": "^pg-[0-9a-z]+$"})] = ""
    """The group's id."""


PLACEMENT_GROUP_RULES: Final = (
    Rule("has(self.name) != has(self.id)", "placementGroupSelector names one group: write either 'name' or 'id'"),
)


class AmiTerm(KubeModel):
    """Selects images."""

    alias: Annotated[
        str,
        Crd(
            {"maxLength": 30},
            (
                Rule(
                    "self.matches('^[a-zA-Z0-9]+@.+$')",
                    "write the alias as family@version, such as al2023@v20250701 or bottlerocket@latest",
                ),
                Rule(
                    f"self.split('@')[0] in {_ALIAS_FAMILIES}",
                    "the alias's family is not known: write al2, al2023, bottlerocket, windows2019, windows2022 or "
                    "windows2025, in small letters, or select the image by id, name, tags or ssmParameter",
                ),
                Rule(
                    "!self.startsWith('windows') || self.split('@').size() < 2 || self.split('@')[1] == 'latest'",
                    "a Windows alias has no pinned versions: write @latest, or select a certain image by id",
                ),
            ),
        ),
    ] = ""
    """EKS's own image as family@version, such as al2023@v20250701 or bottlerocket@latest."""
    tags: Annotated[dict[str, str], _TAGS] = {}
    id: Annotated[str, Crd({"pattern": "ami-[0-9a-z]+"})] = ""
    """The image's id."""
    name: str = ""
    """The image's name; not its Name tag."""
    owner: str = ""
    """Owner of the image: account ids, self, amazon or aws-marketplace."""
    ssm_parameter: str = ""
    """Name or ARN of the SSM parameter that holds the image's id."""


AMI_RULES: Final = (
    Rule(
        "self.all(t, has(t.tags) || has(t.id) || has(t.name) || has(t.alias) || has(t.ssmParameter))",
        "each term of amiSelectorTerms needs 'alias', 'id', 'name', 'tags' or 'ssmParameter': "
        "add one of them or remove the term",
    ),
    Rule(
        "self.all(t, !has(t.id) || !(has(t.alias) || has(t.tags) || has(t.name) || has(t.owner)))",
        "in amiSelectorTerms an 'id' stands alone: remove the other fields from that term, "
        "or write them as a term of their own",
    ),
    Rule(
        "self.all(t, !has(t.alias) || !(has(t.id) || has(t.tags) || has(t.name) || has(t.owner)))",
        "in amiSelectorTerms an 'alias' stands alone: remove the other fields from that term",
    ),
    Rule(
        "size(self) == 1 || self.all(t, !has(t.alias))",
        "an 'alias' is the only term of amiSelectorTerms: remove the other terms, or write all terms without one",
    ),
)
