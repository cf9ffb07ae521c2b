"""EC2NodeClass (`karpenter.k8s.aws/v1`): how instances are made: images, networks, disks, roles, user data."""

from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import Field

from tenure.apis import ec2nodeclass_instance as instance
from tenure.apis import ec2nodeclass_selectors as selectors
from tenure.apis.crd_schema import BY_TYPE, INT32, Crd, Rule, not_empty
from tenure.apis.meta import Condition, KubeModel, KubeObject, KubeStatus, Requirement

AMI_FAMILIES: Final = ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025")
_METADATA_DEFAULT: Final = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 1,
    "httpTokens": "required",
}
_OWN_TAGS: Final = "the controller sets this tag itself, with the value that fits: remove it from 'tags'"
TAG_RULES: Final = (
    Rule("self.all(k, k != '')", "a tag needs a key: write one, or remove the tag"),
    Rule("self.all(k, k != 'eks:eks-cluster-name')", f"eks:eks-cluster-name: {_OWN_TAGS}"),
    Rule("self.all(k, !k.startsWith('kubernetes.io/cluster'))", f"kubernetes.io/cluster/...: {_OWN_TAGS}"),
    Rule("self.all(k, k != 'karpenter.sh/nodepool')", f"karpenter.sh/nodepool: {_OWN_TAGS}"),
    Rule("self.all(k, k != 'karpenter.sh/nodeclaim')", f"karpenter.sh/nodeclaim: {_OWN_TAGS}"),
    Rule("self.all(k, k != 'karpenter.k8s.aws/ec2nodeclass')", f"karpenter.k8s.aws/ec2nodeclass: {_OWN_TAGS}"),
)
SPEC_RULES: Final = (
    Rule(
        "has(self.role) != has(self.instanceProfile)",
        "write either 'role', for which instance profiles are made, or 'instanceProfile', which you made yourself",
    ),
    Rule(
        "!has(self.amiFamily) || self.amiFamily == 'Custom' || self.amiSelectorTerms.all(t, !has(t.alias) "
        "|| t.alias.startsWith(self.amiFamily.lowerAscii() + '@'))",
        "amiFamily and the alias differ: write the alias's own family, write Custom, or leave amiFamily out",
    ),
    Rule(
        "has(self.amiFamily) || self.amiSelectorTerms.exists(t, has(t.alias))",
        "without an alias in amiSelectorTerms the form of the user data is not known: write amiFamily, such as AL2023",
    ),
)


class EC2NodeClassSpec(KubeModel):
    """How the instances are to be."""

    subnet_selector_terms: Annotated[
        tuple[selectors.SubnetTerm, ...], Crd(selectors.MAX_TERMS, selectors.SUBNET_RULES, required=True)
    ] = ()
    """The subnets to launch into."""
    security_group_selector_terms: Annotated[
        tuple[selectors.SecurityGroupTerm, ...], Crd(selectors.MAX_TERMS, selectors.SECURITY_GROUP_RULES, required=True)
    ] = ()
    """The instances' security groups."""
    capacity_reservation_selector_terms: Annotated[
        tuple[selectors.CapacityReservationTerm, ...], Crd(selectors.MAX_TERMS, selectors.CAPACITY_RESERVATION_RULES)
    ] = ()
    """Capacity reservations to launch into."""
    placement_group_selector: Annotated[
        selectors.PlacementGroupSelector | None, Crd(rules=selectors.PLACEMENT_GROUP_RULES)
    ] = None
    associate_public_ip_address: Annotated[bool | None, Field(alias="associatePublicIPAddress")] = None
    """Whether instances get a public IP address; unset: as the subnet says."""
    ip_prefix_count: Annotated[int | None, Crd({**INT32, "minimum": 0})] = None
    """How many address prefixes each network interface gets."""
    ami_selector_terms: Annotated[
        tuple[selectors.AmiTerm, ...], Crd({**selectors.MAX_TERMS, "minItems": 1}, selectors.AMI_RULES, required=True)
    ] = ()
    """The images."""
    ami_family: Annotated[str | None, Crd({"enum": list(AMI_FAMILIES)})] = None
    """Format of the images' user data; optional with an alias, which implies it."""
    user_data: str | None = None
    """Your part of the user data, in the form the family reads; it is merged."""
    role: Annotated[str, Crd(rules=not_empty("role may not be empty: write the name of the nodes' IAM role"))] = ""
    """The IAM role of the nodes."""
    instance_profile: Annotated[
        str | None, Crd(rules=not_empty("instanceProfile may not be empty: write its name, or use 'role'"))
    ] = None
    """An instance profile of your own."""
    tags: Annotated[dict[str, str], Crd(rules=TAG_RULES)] = {}
    """Tags of all that is made in EC2."""
    kubelet: dict[str, Any] | None = None
    """KubeletConfiguration fields, as kubelet names them; the status reports invalid fields."""
    block_device_mappings: Annotated[
        tuple[instance.BlockDeviceMapping, ...], Crd({"maxItems": 50}, instance.BLOCK_DEVICE_RULES)
    ] = ()
    """Disks; unset: as the family needs them."""
    instance_store_policy: Annotated[str | None, Crd({"enum": ["RAID0"]})] = None
    """Use of the instance store volumes."""
    network_interfaces: Annotated[
        tuple[instance.NetworkInterface, ...], Crd({"maxItems": 150}, instance.NETWORK_INTERFACE_RULES)
    ] = ()
    """Network interfaces; unset: one."""
    detailed_monitoring: bool | None = None
    """Whether EC2 measures every minute."""
    metadata_options: Annotated[instance.MetadataOptions, Crd(schema={"default": _METADATA_DEFAULT})] = (
        instance.MetadataOptions()
    )
    connection_tracking: Annotated[
        instance.ConnectionTracking | None, Crd(rules=instance.CONNECTION_TRACKING_RULES)
    ] = None
    context: str | None = None
    """Passed on to CreateFleet; reserved by EC2."""
    cpu_options: instance.CpuOptions | None = None


class ResolvedSubnet(KubeModel):
    """A subnet that was found."""

    id: Annotated[str, Crd(required=True)]
    """Its id."""
    zone: Annotated[str, Crd(required=True)] = ""
    """Its availability zone."""
    zone_id: Annotated[str, Field(alias="zoneID")] = ""
    """The zone's id."""


class ResolvedSecurityGroup(KubeModel):
    """A security group that was found."""

    id: Annotated[str, Crd(required=True)]
    """Its id."""
    name: str = ""
    """Its name."""


class ResolvedAmi(KubeModel):
    """An image that was found, and the instance types it fits."""

    id: Annotated[str, Crd(required=True)]
    """Its id."""
    name: str = ""
    """Its name."""
    deprecated: bool = False
    """Whether its owner calls it deprecated."""
    requirements: Annotated[tuple[Requirement, ...], Crd(required=True)] = ()
    """Requirements that an instance type must satisfy to run the image."""


class ResolvedCapacityReservation(KubeModel):
    """A capacity reservation that was found."""

    availability_zone: Annotated[str, Crd(required=True)] = ""
    """Its zone."""
    end_time: datetime | None = None
    """When it ends; unset: never."""
    id: Annotated[str, Crd({"pattern": "^cr-[0-9a-z]+$"}, required=True)]
    """Its id."""
    instance_match_criteria: Annotated[str, Crd({"enum": ["open", "targeted"]}, required=True)] = ""
    """Which launches it takes."""
    instance_type: Annotated[str, Crd(required=True)] = ""
    """Its instance type."""
    owner_id: Annotated[str, Field(alias="ownerID"), Crd({"pattern": "^[0-9]{12}$"}, required=True)] = ""
    """The account that owns it."""
    reservation_type: Annotated[str, Crd({"default": "default", "enum": ["default", "capacity-block"]})] = "default"
    """Kind of reservation."""
    interruptible: bool | None = None
    """Whether EC2 may take the capacity back."""
    state: Annotated[str, Crd({"default": "active", "enum": ["active", "expiring"]})] = "active"
    """Whether it is about to end."""


class EC2NodeClassStatus(KubeStatus):
    """Resources that the selectors resolved to."""

    subnets: tuple[ResolvedSubnet, ...] = ()
    """Subnets, the one with most free addresses first."""
    security_groups: tuple[ResolvedSecurityGroup, ...] = ()
    """Security groups."""
    amis: tuple[ResolvedAmi, ...] = ()
    """Images, the newest first."""
    capacity_reservations: tuple[ResolvedCapacityReservation, ...] = ()
    """Capacity reservations."""
    instance_profile: str = ""
    """The instance profile of new instances."""
    conditions: Annotated[tuple[Condition, ...], Crd(BY_TYPE)] = ()
    """Health of the class."""


class EC2NodeClass(KubeObject):
    """How EC2 instances are made for nodes."""

    api_version: str = "karpenter.k8s.aws/v1"
    kind: str = "EC2NodeClass"
    spec: Annotated[EC2NodeClassSpec, Crd(rules=SPEC_RULES)] = EC2NodeClassSpec()
    status: EC2NodeClassStatus = EC2NodeClassStatus()

    @property
    def alias(self) -> tuple[str, str] | None:
        """Family in small letters and version of the image alias, such as ('al2023', 'latest'); None without one."""
        found = next((term.alias for term in self.spec.ami_selector_terms if term.alias), "")
        family, at, version = found.partition("@")
        return (family, version) if at else None

    @property
    def ami_family(self) -> str:
        """The family that decides the form of the user data: amiFamily, else the alias's, else Custom."""
        if self.spec.ami_family:
            return self.spec.ami_family
        family = self.alias[0] if self.alias else ""
        return next((one for one in AMI_FAMILIES if one.lower() == family), "Custom")
