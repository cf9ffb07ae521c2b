"""Labels, annotations, taint keys, finalizers, condition types and reasons, and the rules for restricted labels.

The names are those of Karpenter, Kubernetes and EC2, so that manifests and dashboards carry over. Tenure's own names
are at the end. `tenure/apis/resources.py` has the taints as objects.
"""

from typing import Final, NamedTuple

KARPENTER_GROUP: Final = "karpenter.sh"
AWS_GROUP: Final = "karpenter.k8s.aws"
TENURE_GROUP: Final = "tenure.sh"
NODEPOOL_API_VERSION: Final = "karpenter.sh/v1"
EC2NODECLASS_API_VERSION: Final = "karpenter.k8s.aws/v1"
NODEOVERLAY_API_VERSION: Final = "karpenter.sh/v1alpha1"
LIFECYCLEPOLICY_API_VERSION: Final = "tenure.sh/v1alpha1"
CAPACITYBUFFER_API_VERSION: Final = "autoscaling.x-k8s.io/v1beta1"

# --- labels: Karpenter's core -------------------------------------------------------------------------
NODEPOOL: Final = "karpenter.sh/nodepool"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
REGISTERED: Final = "karpenter.sh/registered"
INITIALIZED: Final = "karpenter.sh/initialized"
DO_NOT_SYNC_TAINTS: Final = "karpenter.sh/do-not-sync-taints"
EXCLUDE_FROM_LOAD_BALANCERS: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
EXCLUDE_FROM_LOAD_BALANCERS_VALUE: Final = "karpenter"

SPOT: Final = "spot"
ON_DEMAND: Final = "on-demand"
RESERVED: Final = "reserved"
CAPACITY_TYPES: Final = (SPOT, ON_DEMAND, RESERVED)

# --- labels: Kubernetes -------------------------------------------------------------------------------
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
ARCH: Final = "kubernetes.io/arch"
OS: Final = "kubernetes.io/os"
NODE_NAME_FIELD: Final = "metadata.name (field)"
"""The key of `matchFields` terms in expressions. No label can have it."""
DECLARED_FEATURE: Final = "status.declaredFeatures ({})"
"""The key of a feature that a Node declares, in requirements. No label can have it."""
HOSTNAME: Final = "kubernetes.io/hostname"
WINDOWS_BUILD: Final = "node.kubernetes.io/windows-build"
POD_TEMPLATE_HASH: Final = "pod-template-hash"

# --- labels: the AWS provider -------------------------------------------------------------------------
NODECLASS: Final = "karpenter.k8s.aws/ec2nodeclass"
ZONE_ID: Final = "topology.k8s.aws/zone-id"
EBS_CSI_DRIVER: Final = "ebs.csi.aws.com"
EBS_CSI_ZONE: Final = "topology.ebs.csi.aws.com/zone"
CAPACITY_RESERVATION_ID: Final = "karpenter.k8s.aws/capacity-reservation-id"
CAPACITY_RESERVATION_TYPE: Final = "karpenter.k8s.aws/capacity-reservation-type"
CAPACITY_RESERVATION_INTERRUPTIBLE: Final = "karpenter.k8s.aws/capacity-reservation-interruptible"
INSTANCE_HYPERVISOR: Final = "karpenter.k8s.aws/instance-hypervisor"
INSTANCE_ENCRYPTION_IN_TRANSIT: Final = "karpenter.k8s.aws/instance-encryption-in-transit-supported"
NITRO_SANDBOX: Final = "karpenter.k8s.aws/nitro-sandbox"
INSTANCE_CATEGORY: Final = "karpenter.k8s.aws/instance-category"
INSTANCE_CAPABILITY_FLEX: Final = "karpenter.k8s.aws/instance-capability-flex"
INSTANCE_FAMILY: Final = "karpenter.k8s.aws/instance-family"
INSTANCE_GENERATION: Final = "karpenter.k8s.aws/instance-generation"
INSTANCE_SIZE: Final = "karpenter.k8s.aws/instance-size"
INSTANCE_LOCAL_NVME: Final = "karpenter.k8s.aws/instance-local-nvme"
INSTANCE_CPU: Final = "karpenter.k8s.aws/instance-cpu"
INSTANCE_CPU_MANUFACTURER: Final = "karpenter.k8s.aws/instance-cpu-manufacturer"
INSTANCE_CPU_CLOCK_SPEED: Final = "karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz"
INSTANCE_MEMORY: Final = "karpenter.k8s.aws/instance-memory"
INSTANCE_EBS_BANDWIDTH: Final = "karpenter.k8s.aws/instance-ebs-bandwidth"
INSTANCE_NETWORK_BANDWIDTH: Final = "karpenter.k8s.aws/instance-network-bandwidth"
INSTANCE_GPU_NAME: Final = "karpenter.k8s.aws/instance-gpu-name"
INSTANCE_GPU_MANUFACTURER: Final = "karpenter.k8s.aws/instance-gpu-manufacturer"
INSTANCE_GPU_COUNT: Final = "karpenter.k8s.aws/instance-gpu-count"
INSTANCE_GPU_MEMORY: Final = "karpenter.k8s.aws/instance-gpu-memory"
INSTANCE_ACCELERATOR_NAME: Final = "karpenter.k8s.aws/instance-accelerator-name"
INSTANCE_ACCELERATOR_MANUFACTURER: Final = "karpenter.k8s.aws/instance-accelerator-manufacturer"
INSTANCE_ACCELERATOR_COUNT: Final = "karpenter.k8s.aws/instance-accelerator-count"
INSTANCE_TENANCY: Final = "karpenter.k8s.aws/instance-tenancy"
PLACEMENT_GROUP_ID: Final = "karpenter.k8s.aws/placement-group-id"
PLACEMENT_GROUP_PARTITION: Final = "karpenter.k8s.aws/placement-group-partition"
TENANCIES: Final = ("default", "dedicated")

RESERVATION_LABELS: Final = (CAPACITY_RESERVATION_ID, CAPACITY_RESERVATION_TYPE, CAPACITY_RESERVATION_INTERRUPTIBLE)

CORE_WELL_KNOWN: Final = frozenset({NODEPOOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD})
AWS_WELL_KNOWN: Final = frozenset(
    {
        *RESERVATION_LABELS,
        INSTANCE_HYPERVISOR,
        INSTANCE_ENCRYPTION_IN_TRANSIT,
        NITRO_SANDBOX,
        INSTANCE_CATEGORY,
        INSTANCE_CAPABILITY_FLEX,
        INSTANCE_FAMILY,
        INSTANCE_GENERATION,
        INSTANCE_SIZE,
        INSTANCE_LOCAL_NVME,
        INSTANCE_CPU,
        INSTANCE_CPU_MANUFACTURER,
        INSTANCE_CPU_CLOCK_SPEED,
        INSTANCE_MEMORY,
        INSTANCE_EBS_BANDWIDTH,
        INSTANCE_NETWORK_BANDWIDTH,
        INSTANCE_GPU_NAME,
        INSTANCE_GPU_MANUFACTURER,
        INSTANCE_GPU_COUNT,
        INSTANCE_GPU_MEMORY,
        INSTANCE_ACCELERATOR_NAME,
        INSTANCE_ACCELERATOR_MANUFACTURER,
        INSTANCE_ACCELERATOR_COUNT,
        INSTANCE_TENANCY,
        PLACEMENT_GROUP_ID,
        PLACEMENT_GROUP_PARTITION,
        ZONE_ID,
        WINDOWS_BUILD,
    }
)
WELL_KNOWN: Final = CORE_WELL_KNOWN | AWS_WELL_KNOWN

# Deprecated aliases of the labels above; they are translated before any decision.
NORMALIZED: Final[dict[str, str]] = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
    EBS_CSI_ZONE: ZONE,
}
RESTRICTED_DOMAINS: Final = frozenset({KARPENTER_GROUP, AWS_GROUP})
RESTRICTED_LABELS: Final = frozenset({HOSTNAME})
# Keys with a closed list of values; a requirement that allows none of them is an error.
WELL_KNOWN_VALUES: Final[dict[str, frozenset[str]]] = {
    CAPACITY_TYPE: frozenset(CAPACITY_TYPES),
    INSTANCE_TENANCY: frozenset(TENANCIES),
}

# --- annotations --------------------------------------------------------------------------------------
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
DO_NOT_REPAIR: Final = "karpenter.sh/do-not-repair"
NODEPOOL_HASH: Final = "karpenter.sh/nodepool-hash"
NODEPOOL_HASH_VERSION: Final = "karpenter.sh/nodepool-hash-version"
NODECLAIM_TERMINATION_TIMESTAMP: Final = "karpenter.sh/nodeclaim-termination-timestamp"
NODECLAIM_MIN_VALUES_RELAXED: Final = "karpenter.sh/nodeclaim-min-values-relaxed"
REQUESTED_DRA_DRIVERS: Final = "karpenter.sh/requested-dra-drivers"
"""On a NodeClaim: the DRA drivers whose devices its pods need, separated by commas."""
NVIDIA_CONSUMABLE_CAPACITY: Final = "karpenter.k8s.aws/nvidia-consumable-capacity"
"""On an EC2NodeClass: how the NVIDIA DRA driver shares GPUs."""
PRICE_OVERLAY_APPLIED: Final = "karpenter.sh/price-overlay-applied"
CAPACITY_OVERLAY_APPLIED: Final = "karpenter.sh/capacity-overlay-applied"
NODECLASS_HASH: Final = "karpenter.k8s.aws/ec2nodeclass-hash"
NODECLASS_HASH_VERSION: Final = "karpenter.k8s.aws/ec2nodeclass-hash-version"
INSTANCE_PROFILE_NAME: Final = "karpenter.k8s.aws/instance-profile-name"
TAGGED: Final = "karpenter.k8s.aws/tagged"
CLUSTER_NAME_TAGGED: Final = "compatibility.karpenter.k8s.aws/cluster-name-tagged"
DISRUPTION_COST: Final = "karpenter.sh/disruption-cost"
POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
REBOOT_PRE_BOOT_ID: Final = "karpenter.sh/reboot-pre-boot-id"
REBOOT_TERMINATION_GRACE_PERIOD: Final = "karpenter.sh/reboot-termination-grace-period"
PV_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"

# --- finalizers ---------------------------------------------------------------------------------------
TERMINATION_FINALIZER: Final = "karpenter.sh/termination"
NODECLASS_TERMINATION_FINALIZER: Final = "karpenter.k8s.aws/termination"

# --- taint keys and effects ---------------------------------------------------------------------------
DISRUPTED_TAINT_KEY: Final = "karpenter.sh/disrupted"
REBOOTING_TAINT_KEY: Final = "karpenter.sh/rebooting"
UNREGISTERED_TAINT_KEY: Final = "karpenter.sh/unregistered"
NOT_READY_TAINT_KEY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT_KEY: Final = "node.kubernetes.io/unreachable"
NETWORK_UNAVAILABLE_TAINT_KEY: Final = "node.kubernetes.io/network-unavailable"
SHUTDOWN_TAINT_KEY: Final = "node.cloudprovider.kubernetes.io/shutdown"
UNSCHEDULABLE_TAINT_KEY: Final = "node.kubernetes.io/unschedulable"
UNINITIALIZED_TAINT_KEY: Final = "node.cloudprovider.kubernetes.io/uninitialized"
READINESS_TAINT_PREFIX: Final = "readiness.k8s.io/"
NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"

# --- EC2 tags -----------------------------------------------------------------------------------------
TAG_NAME: Final = "Name"
TAG_NODECLAIM: Final = "karpenter.sh/nodeclaim"
TAG_NODEPOOL: Final = NODEPOOL
TAG_NODECLASS: Final = NODECLASS
TAG_EKS_CLUSTER_NAME: Final = "eks:eks-cluster-name"
TAG_CLUSTER_PREFIX: Final = "kubernetes.io/cluster/"

# --- resources ----------------------------------------------------------------------------------------
CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
NODES: Final = "nodes"
WELL_KNOWN_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
POD_ENI: Final = "vpc.amazonaws.com/pod-eni"
PRIVATE_IPV4: Final = "vpc.amazonaws.com/PrivateIPv4Address"
EFA: Final = "vpc.amazonaws.com/efa"
EFA_DRA_DRIVER: Final = "dra.net"
NVIDIA_GPU: Final = "nvidia.com/gpu"
AMD_GPU: Final = "amd.com/gpu"
NEURON: Final = "aws.amazon.com/neuron"
NEURON_CORE: Final = "aws.amazon.com/neuroncore"
GAUDI: Final = "habana.ai/gaudi"

# --- condition types ----------------------------------------------------------------------------------
READY: Final = "Ready"
# NodePool
VALIDATION_SUCCEEDED: Final = "ValidationSucceeded"
NODECLASS_READY: Final = "NodeClassReady"
NODE_REGISTRATION_HEALTHY: Final = "NodeRegistrationHealthy"
# NodeClaim
LAUNCHED: Final = "Launched"
REGISTERED_CONDITION: Final = "Registered"
INITIALIZED_CONDITION: Final = "Initialized"
CONSOLIDATABLE: Final = "Consolidatable"
DRIFTED: Final = "Drifted"
DRAINED: Final = "Drained"
VOLUMES_DETACHED: Final = "VolumesDetached"
INSTANCE_TERMINATING: Final = "InstanceTerminating"
CONSISTENT_STATE_FOUND: Final = "ConsistentStateFound"
DISRUPTION_REASON: Final = "DisruptionReason"
REBOOTING: Final = "Rebooting"
"""Also the reason of Initialized during a reboot."""
REBOOT_REQUESTED: Final = "RebootRequested"
REBOOT_ISSUED: Final = "RebootIssued"
REBOOT_SUCCEEDED: Final = "RebootSucceeded"
REBOOT_FAILED: Final = "RebootFailed"
# Node: lifecycle conditions of Kubernetes 1.37, and `Drained`
DRAIN_IN_PROGRESS: Final = "DrainInProgress"
MAINTENANCE_PLANNED: Final = "MaintenancePlanned"
MAINTENANCE_IN_PROGRESS: Final = "MaintenanceInProgress"
GRACEFUL_SHUTDOWN: Final = "GracefulNodeShutdownInProgress"
NODE_LIFECYCLE_CONDITIONS: Final = (
    DRAIN_IN_PROGRESS,
    DRAINED,
    MAINTENANCE_PLANNED,
    MAINTENANCE_IN_PROGRESS,
    GRACEFUL_SHUTDOWN,
)
# EC2NodeClass (and ValidationSucceeded)
AMIS_READY: Final = "AMIsReady"
SUBNETS_READY: Final = "SubnetsReady"
SECURITY_GROUPS_READY: Final = "SecurityGroupsReady"
INSTANCE_PROFILE_READY: Final = "InstanceProfileReady"
PLACEMENT_GROUP_READY: Final = "PlacementGroupReady"
CAPACITY_RESERVATIONS_READY: Final = "CapacityReservationsReady"
# CapacityBuffer
READY_FOR_PROVISIONING: Final = "ReadyForProvisioning"
PROVISIONING: Final = "Provisioning"

# Dependents of the condition `Ready`, in Karpenter's order. CapacityReservationsReady is a dependent of the
# NodeClass only while the gate ReservedCapacity is enabled.
NODEPOOL_CONDITIONS: Final = (VALIDATION_SUCCEEDED, NODECLASS_READY)
NODEOVERLAY_CONDITIONS: Final = (VALIDATION_SUCCEEDED,)
LIFECYCLEPOLICY_CONDITIONS: Final = (VALIDATION_SUCCEEDED,)
NODECLAIM_CONDITIONS: Final = (LAUNCHED, REGISTERED_CONDITION, INITIALIZED_CONDITION)
NODECLASS_CONDITIONS: Final = (
    AMIS_READY,
    SUBNETS_READY,
    SECURITY_GROUPS_READY,
    INSTANCE_PROFILE_READY,
    VALIDATION_SUCCEEDED,
    PLACEMENT_GROUP_READY,
)

# --- condition reasons --------------------------------------------------------------------------------
AWAITING_RECONCILIATION: Final = "AwaitingReconciliation"
UNHEALTHY_DEPENDENTS: Final = "UnhealthyDependents"
RECONCILING_DEPENDENTS: Final = "ReconcilingDependents"
# NodePool
NODEPOOL_VALIDATION_FAILED: Final = "NodePoolValidationFailed"
NODECLASS_NOT_FOUND: Final = "NodeClassNotFound"
NODECLASS_TERMINATING: Final = "NodeClassTerminating"
NODECLASS_READINESS_UNKNOWN: Final = "NodeClassReadinessUnknown"
REGISTRATION_FAILED: Final = "RegistrationFailed"
# NodeClaim
LAUNCH_FAILED: Final = "LaunchFailed"
INSUFFICIENT_CAPACITY: Final = "InsufficientCapacity"
NODE_NOT_FOUND: Final = "NodeNotFound"
NODE_NOT_READY: Final = "NodeNotReady"
STARTUP_TAINTS_EXIST: Final = "StartupTaintsExist"
KNOWN_EPHEMERAL_TAINTS_EXIST: Final = "KnownEphemeralTaintsExist"
RESOURCE_NOT_REGISTERED: Final = "ResourceNotRegistered"
DRA_DRIVER_POOLS_NOT_PUBLISHED: Final = "DRADriverPoolsNotPublished"
DRAINING: Final = "Draining"
DRAIN_CANCELLED: Final = "GaveUp"
# Node lifecycle conditions. The prefix tells Tenure's conditions from those of other controllers.
OWN_REASON_PREFIX: Final = "Tenure"
NODE_DRAINING: Final = f"{OWN_REASON_PREFIX}Draining"
NODE_DRAINED: Final = f"{OWN_REASON_PREFIX}Drained"
NODE_DRAIN_FORCED: Final = f"{OWN_REASON_PREFIX}DrainForced"
NODE_MAINTENANCE: Final = f"{OWN_REASON_PREFIX}InstanceMaintenance"
# NodeClaim
AWAITING_VOLUME_DETACHMENT: Final = "AwaitingVolumeDetachment"
TERMINATION_GRACE_PERIOD_ELAPSED: Final = "TerminationGracePeriodElapsed"
CONSISTENCY_CHECK_FAILED: Final = "ConsistencyCheckFailed"
# disruption reasons (budgets, DisruptionReason)
EMPTY: Final = "Empty"
# drift reasons, core and provider
NODEPOOL_DRIFTED: Final = "NodePoolDrifted"
REQUIREMENTS_DRIFTED: Final = "RequirementsDrifted"
INSTANCE_TYPE_NOT_FOUND: Final = "InstanceTypeNotFound"
NODECLASS_DRIFT: Final = "NodeClassDrift"
AMI_DRIFT: Final = "AMIDrift"
SECURITY_GROUP_DRIFT: Final = "SecurityGroupDrift"
SUBNET_DRIFT: Final = "SubnetDrift"
CAPACITY_RESERVATION_DRIFT: Final = "CapacityReservationDrift"
PLACEMENT_GROUP_DRIFT: Final = "PlacementGroupDrift"
# EC2NodeClass
AMI_NOT_FOUND: Final = "AMINotFound"
UNSUPPORTED_ALIAS: Final = "UnsupportedAlias"
SUBNETS_NOT_FOUND: Final = "SubnetsNotFound"
SECURITY_GROUPS_NOT_FOUND: Final = "SecurityGroupsNotFound"
PLACEMENT_GROUP_NOT_FOUND: Final = "PlacementGroupNotFound"
PLACEMENT_GROUP_RESOLUTION_FAILED: Final = "PlacementGroupResolutionFailed"
CREATE_FLEET_AUTH_CHECK_FAILED: Final = "CreateFleetAuthCheckFailed"
CREATE_LAUNCH_TEMPLATE_AUTH_CHECK_FAILED: Final = "CreateLaunchTemplateAuthCheckFailed"
RUN_INSTANCES_AUTH_CHECK_FAILED: Final = "RunInstancesAuthCheckFailed"
INSTANCE_PROFILE_NOT_FOUND: Final = "InstanceProfileNotFound"
DEPENDENCIES_NOT_READY: Final = "DependenciesNotReady"
TAG_VALIDATION_FAILED: Final = "TagValidationFailed"
INVALID_KUBELET_CONFIGURATION: Final = "InvalidKubeletConfiguration"
KUBELET_EXPRESSION_INVALID: Final = "KubeletExpressionInvalid"
KUBELET_EXPRESSION_EVALUATION_FAILED: Final = "KubeletExpressionEvaluationFailed"
KUBELET_EXPRESSIONS_DISABLED: Final = "KubeletExpressionsDisabled"
UNSUPPORTED_KUBELET_CONFIGURATION: Final = "UnsupportedKubeletConfiguration"
NVIDIA_CONSUMABLE_CAPACITY_INVALID: Final = "NVIDIAConsumableCapacityInvalid"
DRA_DISABLED: Final = "DRADisabled"
USER_DATA_SIZE_LIMIT_EXCEEDED: Final = "UserDataSizeLimitExceeded"
CLUSTER_CIDR_RESOLUTION_FAILED: Final = "ClusterCIDRResolutionFailed"
WAITING_ON_NODECLAIM_TERMINATION: Final = "WaitingOnNodeClaimTermination"
# NodeOverlay
RUNTIME_VALIDATION: Final = "RuntimeValidation"
CONFLICT: Final = "Conflict"
# CapacityBuffer
RESOLVED: Final = "Resolved"
SCALABLE_REF_NOT_FOUND: Final = "ScalableRefNotFound"
POD_TEMPLATE_NOT_FOUND: Final = "PodTemplateNotFound"
RESOLUTION_FAILED: Final = "ResolutionFailed"
FITS_EXISTING_CAPACITY: Final = "FitsExistingCapacity"
REQUIRES_NEW_CAPACITY: Final = "RequiresNewCapacity"
NOT_READY_FOR_PROVISIONING: Final = "NotReadyForProvisioning"
BUFFER_EMPTY: Final = "BufferEmpty"


# --- Tenure's own -------------------------------------------------------------------------------------
class OwnName(NamedTuple):
    """A name under `tenure.sh/`; source of docs/reference/annotations.md."""

    name: str
    objects: str
    description: str
    example: str
    since: str = "0.1.0"


OWN_NAMES: Final[list[OwnName]] = []


def _own_name(name: str, objects: str, description: str, example: str) -> str:
    OWN_NAMES.append(OwnName(f"{TENURE_GROUP}/{name}", objects, description, example))
    return OWN_NAMES[-1].name


LAUNCH_GROUP: Final = _own_name(
    "launch-group", "NodeClaim, instance tag", "launch group of the NodeClaim", "4nmqjrc67h-0"
)
OFFERING_SHARD: Final = _own_name(
    "offering-shard", "NodeClaim", "capacity pools to request first in a burst", "us-west-2a/0/3"
)
PLAN: Final = _own_name("plan", "NodeClaim", "planning pass that created it", "4nmqjrc67h")
LAUNCH_REASON: Final = _own_name(
    "launch-reason", "NodeClaim", "its pods, and why this instance type", "one of spec.replicas=3"
)
POD_GROUPS: Final = _own_name(
    "pod-groups", "NodeClaim", "hashes of the groups of equal pods that it is launched for", "1f0c22d4,9ab34e01"
)
REPLACES: Final = _own_name("replaces", "NodeClaim", "workflow whose nodes it replaces", "demo/disruption/1f0c22d4")
REPLACEMENTS: Final = _own_name("replacements", "NodeClaim", "number of replacements of that workflow", "2")
PAUSE: Final = _own_name(
    "pause",
    "NodePool, NodeClaim, Node, Namespace",
    "active pause",
    "until=2026-06-01T18:00:00Z, by=ann, reason=upgrade",
)
INTERRUPTIONS: Final = _own_name(
    "interruptions", "NodeClaim", "AWS events and approvals, JSON", '[{"message":{"kind":"systemStatus"}}]'
)
MAINTENANCE_UNTIL: Final = _own_name(
    "maintenance-until", "NodeClaim", "end of the wait for a stopped instance", "2026-06-01T13:00:00+00:00"
)
NOT_READY_INTERVALS: Final = _own_name(
    "not-ready-intervals", "NodeClaim", "NotReady intervals", "2026-06-01T12:00:00Z/2026-06-01T12:00:10Z"
)
REBOOTED: Final = _own_name(
    "rebooted", "NodeClaim", "repair step and time of the last reboot", "0@2026-06-01T12:00:00+00:00"
)
REPAIR_DUE: Final = _own_name(
    "repair-due", "NodeClaim", "repair that waits for a disruption command, JSON", '{"condition":"KernelReady=False"}'
)
WORKFLOW_URL: Final = _own_name(
    "workflow-url",
    "NodeClaim",
    "page of its workflow in the Temporal UI, if TEMPORAL_UI_URL is set",
    "https://temporal.example.com/namespaces/default/workflows/demo%2Fnodeclaim%2Fweb-x7k2p%2F5f0c2a1e",
)
NODE_MISSING: Final = _own_name("NodeMissing", "NodeClaim condition", "registered Node that no longer exists", "True")
NEEDS_ATTENTION: Final = _own_name(
    "NeedsAttention", "NodeClaim and Node condition", "a blocker that does not clear by itself", "EvictionRefused"
)
EVICTION_REQUESTER: Final = _own_name(
    "drain", "EvictionRequest requester, Eviction label", "a drain that asks the responders of a pod", "requester"
)
IMAGE_PIN: Final = _own_name(
    "image-pin", "EC2NodeClass", "images kept after a rollback, JSON", '{"images":{"ami-2":"ami-1"},"by":"tenure"}'
)
ROLLOUT: Final = _own_name("rollout", "NodePool", "progress of the rollout, for recovery, JSON", '{"wave":1,"done":3}')
EARLY_EVICTED_AT: Final = _own_name("early-evicted-at", "Node", "time of an early eviction", "2026-06-01T12:00:00Z")
RECENT_DISRUPTIONS: Final = _own_name(
    "recent-disruptions", "NodePool", "disruptions for rates, JSON", '[["Drifted","2026-06-01T12:00:00Z","uid"]]'
)
REPLICAS_BEFORE: Final = _own_name("replicas-before", "Deployment", "replicas before `tenure adopt`", "2")
OWN_DELETION_COST: Final = _own_name(
    "pod-deletion-cost", "Pod", "deletion cost that Tenure wrote; a different one is the user's", "-65536"
)
NOMINATED: Final = _own_name("Nominated", "Pod condition", "node that the plan nominated", "ip-10-0-1-2.ec2.internal")

# Reasons of events and conditions.
HAS_REBOOTED: Final = "Rebooted"
UNHEALTHY: Final = "Unhealthy"
OVERPROVISIONED: Final = "Overprovisioned"
REPLICAS_WAIT: Final = "ReplicasWait"
ROLLED_BACK: Final = "RolledBack"
IMAGE_DELETED: Final = "ImageGone"
INVALID_USER_DATA: Final = "InvalidUserData"
DRY_RUN_FAILED: Final = "DryRunFailed"
USER_DATA_NEAR_LIMIT: Final = "UserDataNearLimit"
USER_DATA_SETTINGS_DROPPED: Final = "UserDataSettingsDropped"
ROOT_VOLUME_NOT_MAPPED: Final = "RootVolumeNotMapped"
AWS_UNREACHABLE: Final = "AWSNotAnswering"
CLEAN_UP_FAILED: Final = "CleanUpFailed"
# Conditions of an EC2NodeClass that `Ready` does not depend on.
IMAGES_PINNED: Final = "ImagesPinned"
AWS_REACHABLE: Final = "AWSAnswers"


def domain_of(key: str) -> str:
    """The part of a label key before the slash, or the empty string."""
    domain, slash, _ = key.partition("/")
    return domain if slash else ""


def nodeclass_label(group: str, kind: str) -> str:
    """The label that names the NodeClass of a NodeClaim or Node, e.g. `karpenter.k8s.aws/ec2nodeclass`."""
    return f"{group}/{kind.lower()}"


def normalize_label_key(key: str) -> str:
    """The current name of a label key that may be a deprecated alias."""
    return NORMALIZED.get(key, key)


def is_restricted(key: str) -> bool:
    """Whether users may not set this label.

    Restricted are the hostname, and labels of restricted domains and their subdomains that are not well-known.
    Kubernetes' own domains are allowed.
    """
    if key in WELL_KNOWN:
        return False
    domain = domain_of(key)
    reserved = any(domain == root or domain.endswith("." + root) for root in RESTRICTED_DOMAINS)
    return reserved or key in RESTRICTED_LABELS


def is_injected_elsewhere(key: str) -> bool:
    """Whether planning must not set this label on a NodeClaim: it is restricted, or the provider sets it at launch."""
    return key in WELL_KNOWN or is_restricted(key)
