output "worker_role_arn" {
  description = "serviceAccount.roleArn of the chart, for IRSA."
  value       = aws_iam_role.worker.arn
}

output "node_role_name" {
  description = "spec.role of EC2NodeClasses."
  value       = local.node_role_name
}

output "node_role_arn" {
  description = "For the ConfigMap aws-auth. Null without create_node_role."
  value       = one(aws_iam_role.node[*].arn)
}

output "queue_name" {
  description = "The setting INTERRUPTION_QUEUE of the worker."
  value       = local.queue_name
}
