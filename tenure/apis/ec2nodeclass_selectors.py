"""Selector terms of an EC2NodeClass: subnets, security groups, reservations, placement group, images.

Terms of a list are ORed, the fields of a term ANDed. Rules forbid other fields next to `id` or `name`. For images they
apply to each term; for subnets, groups and reservations the list passes if one term satisfies them. Karpenter's CRD
does the same. In such a mixed term, `tenure/aws` uses `id` before `name` before `tags`.
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
            "empty tag keys or values aren't supported: expected a value, or '*' for any value",
        ),
    ),
    doc="Tags of the resource; the value '*' matches any value.",
)
_ALIAS_FAMILIES: Final = "['al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025']"


class SubnetTerm(KubeModel):
    """Selects subnets."""

    tags: Annotated[dict[str, str], _TAGS] = {}
    id: Annotated[str, Crd({"pattern": "subnet-[0-9a-z]+"})] = ""
    """ID of the subnet."""


SUBNET_RULES: Final = (
    Rule("size(self) > 0", "subnetSelectorTerms cannot be empty: expected tags or an id, e.g. - id: subnet-0123"),
    Rule("self.all(t, has(t.tags) || has(t.id))", "each term of subnetSelectorTerms must have 'tags' or 'id'"),
    Rule(
        "size(self) == 0 || self.exists(t, !(has(t.id) && has(t.tags)))",
        "'id' is mutually exclusive with other fields in a term of subnetSelectorTerms: move 'tags' to another term",
    ),
)


class SecurityGroupTerm(KubeModel):
    """Selects security groups."""

    tags: Annotated[dict[str, str], _TAGS] = {}
    id: Annotated[str, Crd({"pattern": "sg-[0-9a-z]+"})] = ""
    """ID of the security group."""
    name: str = ""
    """Name of the security group; not its Name tag."""


SECURITY_GROUP_RULES: Final = (
    Rule(
        "size(self) > 0",
        "securityGroupSelectorTerms cannot be empty: expected tags, a name or an id, e.g. - id: sg-0123",
    ),
    Rule(
        "self.all(t, has(t.tags) || has(t.id) || has(t.name))",
        "each term of securityGroupSelectorTerms must have 'tags', 'id' or 'name'",
    ),
    Rule(
        "size(self) == 0 || self.exists(t, !(has(t.id) && (has(t.tags) || has(t.name))))",
        "'id' is mutually exclusive with other fields in a term of securityGroupSelectorTerms: "
        "move them to another term",
    ),
    Rule(
        "size(self) == 0 || self.exists(t, !(has(t.name) && (has(t.tags) || has(t.id))))",
        "'name' is mutually exclusive with other fields in a term of securityGroupSelectorTerms: "
        "move them to another term",
    ),
)


class CapacityReservationTerm(KubeModel):
    """Selects capacity reservations."""

    tags: Annotated[dict[str, str], _TAGS] = {}
    id: Annotated[str, Crd({"pattern": "^cr-[0-9a-z]+$"})] = ""
    """ID of the reservation."""
    owner_id: Annotated[str, Field(alias="ownerID"), Crd({"pattern": "^[0-9]{12}$"})] = ""
    """Account that owns the reservation."""
    instance_match_criteria: Annotated[str, Crd({"enum": ["open", "targeted"]})] = ""
    """Which launches use the reservation."""


CAPACITY_RESERVATION_RULES: Final = (
    Rule("size(self) > 0", "capacityReservationSelectorTerms cannot be empty: add a term or remove the field"),
    Rule(
        "self.all(t, has(t.tags) || has(t.id) || has(t.instanceMatchCriteria))",
        "each term of capacityReservationSelectorTerms must have 'tags', 'id' or 'instanceMatchCriteria'",
    ),
    Rule(
        "size(self) == 0 || self.exists(t, !(has(t.id) && (has(t.tags) || has(t.ownerID) "
        "|| has(t.instanceMatchCriteria))))",
        "'id' is mutually exclusive with other fields in a term of capacityReservationSelectorTerms: "
        "move them to another term",
    ),
)


class PlacementGroupSelector(KubeModel):
    """Selects one placement group, in which all instances are placed."""

    name: Annotated[str, Crd({"minLength": 1})] = ""
    """Name of the placement group."""
    id: Annotated[str, Crd({"pattern": "^pg-[0-9a-z]+$"})] = ""
    """ID of the placement group."""


PLACEMENT_GROUP_RULES: Final = (
    Rule("has(self.name) != has(self.id)", "placementGroupSelector: expected either 'name' or 'id'"),
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
                    "alias must match the format 'family@version', e.g. al2023@v20250701 or bottlerocket@latest",
                ),
                Rule(
                    f"self.split('@')[0] in {_ALIAS_FAMILIES}",
                    "family is not supported, must be one of the following: al2, al2023, bottlerocket, windows2019, "
                    "windows2022, windows2025; select other images by id, name, tags or ssmParameter",
                ),
                Rule(
                    "!self.startsWith('windows') || self.split('@').size() < 2 || self.split('@')[1] == 'latest'",
                    "windows families may only specify version 'latest'; select a pinned image by id",
                ),
            ),
        ),
    ] = ""
    """EKS's own image as family@version, such as al2023@v20250701 or bottlerocket@latest."""
    tags: Annotated[dict[str, str], _TAGS] = {}
    id: Annotated[str, Crd({"pattern": "ami-[0-9a-z]+"})] = ""
    """ID of the image."""
    name: str = ""
    """Name of the image; not its Name tag."""
    owner: str = ""
    """Owner of the image: account IDs, self, amazon or aws-marketplace."""
    ssm_parameter: str = ""
    """Name or ARN of the SSM parameter with the ID of the image."""


AMI_RULES: Final = (
    Rule(
        "self.all(t, has(t.tags) || has(t.id) || has(t.name) || has(t.alias) || has(t.ssmParameter))",
        "each term of amiSelectorTerms must have 'alias', 'id', 'name', 'tags' or 'ssmParameter'",
    ),
    Rule(
        "self.all(t, !has(t.id) || !(has(t.alias) || has(t.tags) || has(t.name) || has(t.owner)))",
        "'id' is mutually exclusive with other fields in a term of amiSelectorTerms: move them to another term",
    ),
    Rule(
        "self.all(t, !has(t.alias) || !(has(t.id) || has(t.tags) || has(t.name) || has(t.owner)))",
        "'alias' is mutually exclusive with other fields in a term of amiSelectorTerms: remove them",
    ),
    Rule(
        "size(self) == 1 || self.all(t, !has(t.alias))",
        "'alias' is mutually exclusive with other terms of amiSelectorTerms: expected one term",
    ),
)
