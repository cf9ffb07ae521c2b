# The variables have the names and defaults of the parameters of deploy/cloudformation.

variable "cluster_name" {
  type        = string
  description = "Name of the EKS cluster, as in CLUSTER_NAME."
  validation {
    condition     = can(regex("^[0-9A-Za-z][0-9A-Za-z_-]{0,99}$", var.cluster_name))
    error_message = "cluster_name: expected an EKS cluster name, such as prod; letters, digits, - and _, at most 100."
  }
}

variable "create_node_role" {
  type        = bool
  default     = true
  description = "Create the role of the nodes and its access entry. A cluster that runs Karpenter has both."
}

variable "create_queue" {
  type        = bool
  default     = true
  description = "Create the interruption queue and its rules. A cluster that runs Karpenter may have them."
}

variable "create_pod_identity_association" {
  type        = bool
  default     = true
  description = "Associate the worker's role with its service account by EKS Pod Identity. With IRSA: false."
}

variable "node_role_name" {
  type        = string
  default     = ""
  description = "Name of the role of the nodes, as in EC2NodeClasses. Empty: KarpenterNodeRole-CLUSTER."
  validation {
    condition     = can(regex("^[0-9A-Za-z+=,.@_/-]{0,128}$", var.node_role_name))
    error_message = "node_role_name: expected an IAM role name, such as KarpenterNodeRole-prod."
  }
}

variable "access_entry" {
  type        = string
  default     = "EC2_LINUX"
  description = "Type of the access entry. none: the ConfigMap aws-auth maps the role."
  validation {
    condition     = contains(["EC2_LINUX", "EC2_WINDOWS", "none"], var.access_entry)
    error_message = "access_entry: expected EC2_LINUX, EC2_WINDOWS or none."
  }
}

variable "cni_policy" {
  type        = bool
  default     = true
  description = "Attach AmazonEKS_CNI_Policy. false: the VPC CNI has a role of its own."
}

variable "session_manager" {
  type        = bool
  default     = true
  description = "Attach AmazonSSMManagedInstanceCore, for shells on nodes without SSH."
}

variable "namespace" {
  type        = string
  default     = "tenure"
  description = "Namespace of the worker."
  validation {
    condition     = can(regex("^[0-9a-z][0-9a-z-]{0,62}$", var.namespace))
    error_message = "namespace: expected a Kubernetes namespace, such as tenure."
  }
}

variable "service_account" {
  type        = string
  default     = "tenure"
  description = "Service account of the worker."
  validation {
    condition     = can(regex("^[0-9a-z][0-9a-z.-]{0,252}$", var.service_account))
    error_message = "service_account: expected the name of a service account, such as tenure."
  }
}

variable "oidc_provider" {
  type        = string
  default     = ""
  description = "For IRSA: the cluster's OIDC provider without https://. Empty: only EKS Pod Identity."
  validation {
    condition     = can(regex("^([0-9a-z.-]+/id/[0-9A-Z]+)?$", var.oidc_provider))
    error_message = "oidc_provider: expected a provider such as oidc.eks.eu-west-1.amazonaws.com/id/0123456789ABCDEF."
  }
}

variable "interruption" {
  type        = bool
  default     = true
  description = "Read the interruption queue."
}

variable "zonal_shift" {
  type        = bool
  default     = true
  description = "Read zonal shifts of the cluster, for ENABLE_ZONAL_SHIFT."
}

variable "node_repair" {
  type        = bool
  default     = false
  description = "Reboot instances, where a LifecyclePolicy sets repair.steps reboot."
}

variable "stop_start" {
  type        = bool
  default     = false
  description = "Stop and start instances, where a LifecyclePolicy sets action stopStart."
}

variable "interruption_queue_name" {
  type        = string
  default     = ""
  description = "Name of the interruption queue, as in INTERRUPTION_QUEUE. Empty: the cluster's name."
  validation {
    condition     = can(regex("^[0-9A-Za-z_-]{0,80}$", var.interruption_queue_name))
    error_message = "interruption_queue_name: expected an SQS queue name, such as prod; letters, digits, - and _, at most 80."
  }
}

variable "message_retention_seconds" {
  type        = number
  default     = 345600
  description = "Retention of unread messages. Temporal may be unavailable for this long without loss."
  validation {
    condition     = var.message_retention_seconds >= 60 && var.message_retention_seconds <= 1209600
    error_message = "message_retention_seconds: expected 60 to 1209600."
  }
}

# The kinds of events, named as in a LifecyclePolicy. A kind that is false has no rule, so its events are not sent.
# Disable only kinds that every LifecyclePolicy ignores.

variable "spot_interruption" {
  type        = bool
  default     = true
  description = "A spot instance is interrupted in two minutes."
}

variable "capacity_reservation_interruption" {
  type        = bool
  default     = true
  description = "An interruptible capacity reservation reclaims its instance."
}

variable "rebalance_recommendation" {
  type        = bool
  default     = true
  description = "A spot instance has an elevated risk of interruption."
}

variable "scheduled_change" {
  type        = bool
  default     = true
  description = "Maintenance of instances that AWS Health announces."
}

variable "instance_stopping" {
  type        = bool
  default     = true
  description = "An instance is being stopped."
}

variable "instance_terminating" {
  type        = bool
  default     = true
  description = "An instance is being terminated."
}
