"""EC2NodeClass (`karpenter.k8s.aws/v1`): configuration of instances: images, networks, disks, roles, user data."""

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
_OWN_TAGS: Final = "restricted tag, which the controller sets: remove it from 'tags'"
TAG_RULES: Final = (
    Rule("self.all(k, k != '')", "empty tag keys aren't supported: add a key or remove the tag"),
    Rule("self.all(k, k != 'eks:eks-cluster-name')", f"eks:eks-cluster-name: {_OWN_TAGS}"),
    Rule("self.all(k, !k.startsWith('kubernetes.io/cluster'))", f"kubernetes.io/cluster/...: {_OWN_TAGS}"),
    Rule("self.all(k, k != 'karpenter.sh/nodepool')", f"karpenter.sh/nodepool: {_OWN_TAGS}"),
    Rule("self.all(k, k != 'karpenter.sh/nodeclaim')", f"karpenter.sh/nodeclaim: {_OWN_TAGS}"),
    Rule("self.all(k, k != 'karpenter.k8s.aws/ec2nodeclass')", f"karpenter.k8s.aws/ec2nodeclass: {_OWN_TAGS}"),
)
SPEC_RULES: Final = (
    Rule(
        "has(self.role) != has(self.instanceProfile)",
        "must specify exactly one of 'role', for which Tenure creates the instance profile, and 'instanceProfile', "
        "an existing one",
    ),
    Rule(
        "!has(self.amiFamily) || self.amiFamily == 'Custom' || self.amiSelectorTerms.all(t, !has(t.alias) "
        "|| t.alias.startsWith(self.amiFamily.lowerAscii() + '@'))",
        "amiFamily does not match the alias: expected the alias's family or Custom, or remove amiFamily",
    ),
    Rule(
        "has(self.amiFamily) || self.amiSelectorTerms.exists(t, has(t.alias))",
        "must specify amiFamily if amiSelectorTerms does not contain an alias, because it sets the user data format",
    ),
)


class EC2NodeClassSpec(KubeModel):
    """Configuration of the instances."""

    subnet_selector_terms: Annotated[
        tuple[selectors.SubnetTerm, ...], Crd(selectors.MAX_TERMS, selectors.SUBNET_RULES, required=True)
    ] = ()
    """The subnets to launch into."""
    security_group_selector_terms: Annotated[
        tuple[selectors.SecurityGroupTerm, ...], Crd(selectors.MAX_TERMS, selectors.SECURITY_GROUP_RULES, required=True)
    ] = ()
    """Security groups of the instances."""
    capacity_reservation_selector_terms: Annotated[
        tuple[selectors.CapacityReservationTerm, ...], Crd(selectors.MAX_TERMS, selectors.CAPACITY_RESERVATION_RULES)
    ] = ()
    """Capacity reservations to launch into."""
    placement_group_selector: Annotated[
        selectors.PlacementGroupSelector | None, Crd(rules=selectors.PLACEMENT_GROUP_RULES)
    ] = None
    associate_public_ip_address: Annotated[bool | None, Field(alias="associatePublicIPAddress")] = None
    """Whether instances get a public IP address; unset: the subnet decides."""
    ip_prefix_count: Annotated[int | None, Crd({**INT32, "minimum": 0})] = None
    """Number of IP address prefixes per network interface."""
    ami_selector_terms: Annotated[
        tuple[selectors.AmiTerm, ...], Crd({**selectors.MAX_TERMS, "minItems": 1}, selectors.AMI_RULES, required=True)
    ] = ()
    """Images to launch."""
    ami_family: Annotated[str | None, Crd({"enum": list(AMI_FAMILIES)})] = None
    """Format of the user data. Optional with an alias, which implies it."""
    user_data: str | None = None
    """Custom user data in the format of the image family; merged with Tenure's user data."""
    role: Annotated[str, Crd(rules=not_empty("role cannot be empty: expected the name of the nodes' IAM role"))] = ""
    """The IAM role of the nodes."""
    instance_profile: Annotated[
        str | None,
        Crd(
            rules=not_empty("instanceProfile cannot be empty: expected the name of an instance profile, or use 'role'")
        ),
    ] = None
    """An existing instance profile."""
    tags: Annotated[dict[str, str], Crd(rules=TAG_RULES)] = {}
    """Tags of all EC2 resources that Tenure creates for the class."""
    kubelet: dict[str, Any] | None = None
    """KubeletConfiguration fields, by kubelet's names; the status reports invalid fields."""
    block_device_mappings: Annotated[
        tuple[instance.BlockDeviceMapping, ...], Crd({"maxItems": 50}, instance.BLOCK_DEVICE_RULES)
    ] = ()
    """Disks; unset: the defaults of the image family."""
    instance_store_policy: Annotated[str | None, Crd({"enum": ["RAID0"]})] = None
    """Use of the instance store volumes."""
    network_interfaces: Annotated[
        tuple[instance.NetworkInterface, ...], Crd({"maxItems": 150}, instance.NETWORK_INTERFACE_RULES)
    ] = ()
    """Network interfaces; unset: one."""
    detailed_monitoring: bool | None = None
    """Whether EC2 publishes metrics every minute."""
    metadata_options: Annotated[instance.MetadataOptions, Crd(schema={"default": _METADATA_DEFAULT})] = (
        instance.MetadataOptions()
    )
    connection_tracking: Annotated[
        instance.ConnectionTracking | None, Crd(rules=instance.CONNECTION_TRACKING_RULES)
    ] = None
    context: str | None = None
    """Passed to CreateFleet; reserved by EC2."""
    cpu_options: instance.CpuOptions | None = None
    enclave_options: instance.EnclaveOptions | None = None

    @property
    def enclaves_enabled(self) -> bool:
        return self.enclave_options is not None and self.enclave_options.enabled


class ResolvedSubnet(KubeModel):
    """A resolved subnet."""

    id: Annotated[str, Crd(required=True)]
    """ID of the subnet."""
    zone: Annotated[str, Crd(required=True)] = ""
    """Availability zone of the subnet."""
    zone_id: Annotated[str, Field(alias="zoneID")] = ""
    """ID of the availability zone."""


class ResolvedSecurityGroup(KubeModel):
    """A resolved security group."""

    id: Annotated[str, Crd(required=True)]
    """ID of the security group."""
    name: str = ""
    """Name of the security group."""


class ResolvedAmi(KubeModel):
    """A resolved image, and the instance types that can run it."""

    id: Annotated[str, Crd(required=True)]
    """ID of the image."""
    name: str = ""
    """Name of the image."""
    deprecated: bool = False
    """Whether the image is deprecated."""
    requirements: Annotated[tuple[Requirement, ...], Crd(required=True)] = ()
    """Requirements that an instance type must satisfy to run the image."""


class ResolvedCapacityReservation(KubeModel):
    """A resolved capacity reservation."""

    availability_zone: Annotated[str, Crd(required=True)] = ""
    """Availability zone of the reservation."""
    end_time: datetime | None = None
    """End of the reservation; unset: never."""
    id: Annotated[str, Crd({"pattern": "^cr-[0-9a-z]+$"}, required=True)]
    """ID of the reservation."""
    instance_match_criteria: Annotated[str, Crd({"enum": ["open", "targeted"]}, required=True)] = ""
    """Which launches use the reservation."""
    instance_type: Annotated[str, Crd(required=True)] = ""
    """Instance type of the reservation."""
    owner_id: Annotated[str, Field(alias="ownerID"), Crd({"pattern": "^[0-9]{12}$"}, required=True)] = ""
    """Account that owns the reservation."""
    reservation_type: Annotated[str, Crd({"default": "default", "enum": ["default", "capacity-block"]})] = "default"
    """Type of the reservation."""
    interruptible: bool | None = None
    """Whether EC2 may reclaim the capacity."""
    state: Annotated[str, Crd({"default": "active", "enum": ["active", "expiring"]})] = "active"
    """Whether the reservation is about to end."""


class EC2NodeClassStatus(KubeStatus):
    """Resources that the selectors resolved to."""

    subnets: tuple[ResolvedSubnet, ...] = ()
    """Subnets, most free IP addresses first."""
    security_groups: tuple[ResolvedSecurityGroup, ...] = ()
    """Security groups."""
    amis: tuple[ResolvedAmi, ...] = ()
    """Images, newest first."""
    capacity_reservations: tuple[ResolvedCapacityReservation, ...] = ()
    """Capacity reservations."""
    instance_profile: str = ""
    """The instance profile of new instances."""
    conditions: Annotated[tuple[Condition, ...], Crd(BY_TYPE)] = ()
    """Health of the class."""


class EC2NodeClass(KubeObject):
    """Configuration of the EC2 instances of nodes."""

    api_version: str = "karpenter.k8s.aws/v1"
    kind: str = "EC2NodeClass"
    spec: Annotated[EC2NodeClassSpec, Crd(rules=SPEC_RULES)] = EC2NodeClassSpec()
    status: EC2NodeClassStatus = EC2NodeClassStatus()

    @property
    def alias(self) -> tuple[str, str] | None:
        """Lower-case family and version of the image alias, such as ('al2023', 'latest'); None without an alias."""
        found = next((term.alias for term in self.spec.ami_selector_terms if term.alias), "")
        family, at, version = found.partition("@")
        return (family, version) if at else None

    @property
    def ami_family(self) -> str:
        """The family that determines the user data format: amiFamily, else the alias's, else Custom."""
        if self.spec.ami_family:
            return self.spec.ami_family
        family = self.alias[0] if self.alias else ""
        return next((one for one in AMI_FAMILIES if one.lower() == family), "Custom")
