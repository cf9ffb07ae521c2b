# The role of the nodes with its access entry, so that instances can join the cluster.

locals {
  node_policies = {
    AmazonEKSWorkerNodePolicy          = true
    AmazonEC2ContainerRegistryPullOnly = true
    AmazonEKS_CNI_Policy               = var.cni_policy
    AmazonSSMManagedInstanceCore       = var.session_manager
  }
}

data "aws_iam_policy_document" "node_trust" {
  statement {
    actions = ["sts:AssumeRole"]
    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "node" {
  count              = var.create_node_role ? 1 : 0
  name               = local.node_role_name
  description        = "Nodes of the EKS cluster ${var.cluster_name}"
  assume_role_policy = data.aws_iam_policy_document.node_trust.json
}

resource "aws_iam_role_policy_attachment" "node" {
  for_each   = toset([for name, wanted in local.node_policies : name if wanted && var.create_node_role])
  role       = aws_iam_role.node[0].name
  policy_arn = "arn:${local.partition}:iam::aws:policy/${each.key}"
}

resource "aws_eks_access_entry" "node" {
  count         = var.create_node_role && var.access_entry != "none" ? 1 : 0
  cluster_name  = var.cluster_name
  principal_arn = aws_iam_role.node[0].arn
  type          = var.access_entry
}
