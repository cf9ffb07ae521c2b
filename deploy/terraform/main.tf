# The AWS resources of Tenure: the stacks of deploy/cloudformation as one module. A test compares both.

data "aws_partition" "current" {}
data "aws_region" "current" {}
data "aws_caller_identity" "current" {}

locals {
  partition  = data.aws_partition.current.partition
  region     = data.aws_region.current.id
  account_id = data.aws_caller_identity.current.account_id
  cluster    = "arn:${local.partition}:eks:${local.region}:${local.account_id}:cluster/${var.cluster_name}"
  tags       = { "kubernetes.io/cluster/${var.cluster_name}" = "owned" }

  node_role_name = var.node_role_name != "" ? var.node_role_name : "KarpenterNodeRole-${var.cluster_name}"
  queue_name     = var.interruption_queue_name != "" ? var.interruption_queue_name : var.cluster_name
}
