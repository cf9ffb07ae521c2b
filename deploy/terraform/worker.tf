# The role of the worker, with the policies of deploy/iam, for EKS Pod Identity and for IRSA.

locals {
  placeholders = {
    "$${AWS::Partition}"        = local.partition
    "$${AWS::Region}"           = local.region
    "$${AWS::AccountId}"        = local.account_id
    "$${ClusterName}"           = var.cluster_name
    "$${NodeRoleName}"          = local.node_role_name
    "$${InterruptionQueueName}" = local.queue_name
  }
  policies = {
    "eks-integration"    = true
    "iam-integration"    = true
    "interruption"       = var.interruption
    "node-lifecycle"     = true
    "node-repair"        = var.node_repair
    "resource-discovery" = true
    "stop-start"         = var.stop_start
    "zonal-shift"        = var.zonal_shift
  }
  # Each file as a list of its placeholders and the text between them.
  parts = {
    for name, wanted in local.policies :
    name => regexall("\\$\\{[A-Za-z:]+\\}|\\$|[^$]+", file("${path.module}/../iam/${name}.json")) if wanted
  }
  documents = {
    for name, parts in local.parts : name => join("", [for part in parts : lookup(local.placeholders, part, part)])
  }
}

data "aws_iam_policy_document" "worker_trust" {
  statement {
    sid     = "AllowPodIdentity"
    actions = ["sts:AssumeRole", "sts:TagSession"]
    principals {
      type        = "Service"
      identifiers = ["pods.eks.amazonaws.com"]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:RequestTag/eks-cluster-arn"
      values   = [local.cluster]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:RequestTag/kubernetes-namespace"
      values   = [var.namespace]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:RequestTag/kubernetes-service-account"
      values   = [var.service_account]
    }
  }
  dynamic "statement" {
    for_each = var.oidc_provider != "" ? [var.oidc_provider] : []
    content {
      sid     = "AllowServiceAccount"
      actions = ["sts:AssumeRoleWithWebIdentity"]
      principals {
        type        = "Federated"
        identifiers = ["arn:${local.partition}:iam::${local.account_id}:oidc-provider/${var.oidc_provider}"]
      }
      condition {
        test     = "StringEquals"
        variable = "${var.oidc_provider}:aud"
        values   = ["sts.amazonaws.com"]
      }
      condition {
        test     = "StringEquals"
        variable = "${var.oidc_provider}:sub"
        values   = ["system:serviceaccount:${var.namespace}:${var.service_account}"]
      }
    }
  }
}

resource "aws_iam_role" "worker" {
  name_prefix        = "tenure-"
  description        = "${var.cluster_name}: Tenure worker"
  assume_role_policy = data.aws_iam_policy_document.worker_trust.json
}

resource "aws_iam_policy" "worker" {
  for_each    = local.documents
  name_prefix = "tenure-${each.key}-"
  description = "${var.cluster_name}: deploy/iam/${each.key}.json of Tenure"
  policy      = each.value
}

resource "aws_iam_role_policy_attachment" "worker" {
  for_each   = aws_iam_policy.worker
  role       = aws_iam_role.worker.name
  policy_arn = each.value.arn
}

resource "aws_eks_pod_identity_association" "worker" {
  count           = var.create_pod_identity_association ? 1 : 0
  cluster_name    = var.cluster_name
  namespace       = var.namespace
  service_account = var.service_account
  role_arn        = aws_iam_role.worker.arn
}
