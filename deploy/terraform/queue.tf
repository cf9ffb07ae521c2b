# The queue of AWS events about instances, the EventBridge rules that fill it, and its dead-letter queue.
# EC2 and AWS Health send events only to the default event bus of the cluster's region.

locals {
  rules = {
    SpotInterruption = {
      wanted      = var.spot_interruption
      description = "${var.cluster_name}: spot interruptions to Tenure"
      pattern     = { source = ["aws.ec2"], detail-type = ["EC2 Spot Instance Interruption Warning"] }
    }
    CapacityReservationInterruption = {
      wanted      = var.capacity_reservation_interruption
      description = "${var.cluster_name}: interruptions of reserved capacity to Tenure"
      pattern     = { source = ["aws.ec2"], detail-type = ["EC2 Capacity Reservation Instance Interruption Warning"] }
    }
    RebalanceRecommendation = {
      wanted      = var.rebalance_recommendation
      description = "${var.cluster_name}: rebalance recommendations to Tenure"
      pattern     = { source = ["aws.ec2"], detail-type = ["EC2 Instance Rebalance Recommendation"] }
    }
    ScheduledChange = {
      wanted      = var.scheduled_change
      description = "${var.cluster_name}: maintenance of instances to Tenure"
      pattern = {
        source      = ["aws.health"]
        detail-type = ["AWS Health Event"]
        detail      = { service = ["EC2"], eventTypeCategory = ["scheduledChange"] }
      }
    }
    InstanceStopping = {
      wanted      = var.instance_stopping
      description = "${var.cluster_name}: stopping instances to Tenure"
      pattern = {
        source      = ["aws.ec2"]
        detail-type = ["EC2 Instance State-change Notification"]
        detail      = { state = ["stopping", "stopped"] }
      }
    }
    InstanceTerminating = {
      wanted      = var.instance_terminating
      description = "${var.cluster_name}: terminating instances to Tenure"
      pattern = {
        source      = ["aws.ec2"]
        detail-type = ["EC2 Instance State-change Notification"]
        detail      = { state = ["shutting-down", "terminated"] }
      }
    }
  }
  # Patterns as text: the rules have different types.
  patterns = { for name, rule in local.rules : name => jsonencode(rule.pattern) if rule.wanted && var.create_queue }
}

resource "aws_sqs_queue" "interruption" {
  count                     = var.create_queue ? 1 : 0
  name                      = local.queue_name
  message_retention_seconds = var.message_retention_seconds
  # SQS's own key. EventBridge cannot use the key alias/aws/sqs, and your own key only if its policy allows it.
  sqs_managed_sse_enabled = true
  # 1,000 is the maximum of SQS: messages stay for about eight hours of an outage of Temporal before they move.
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead_letter[0].arn
    maxReceiveCount     = 1000
  })
  tags = local.tags
}

# Messages that no workflow could receive, after a long outage of Temporal.
resource "aws_sqs_queue" "dead_letter" {
  count                     = var.create_queue ? 1 : 0
  name_prefix               = "tenure-dead-letter-"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
  tags                      = local.tags
}

resource "aws_cloudwatch_metric_alarm" "dead_letter" {
  count               = var.create_queue ? 1 : 0
  alarm_name          = "tenure-dead-letter-${var.cluster_name}"
  alarm_description   = "No workflow of ${var.cluster_name} could receive messages about its instances. When Temporal responds, redrive the dead-letter queue ${aws_sqs_queue.dead_letter[0].name}."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = aws_sqs_queue.dead_letter[0].name }
  statistic           = "Maximum"
  period              = 300
  evaluation_periods  = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
}

data "aws_iam_policy_document" "queue" {
  count     = var.create_queue ? 1 : 0
  policy_id = "EC2InterruptionPolicy"
  # The services send for rules of every account; allow only rules of this account.
  statement {
    sid       = "AllowRulesOfThisAccount"
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.interruption[0].arn]
    principals {
      type        = "Service"
      identifiers = ["events.amazonaws.com"]
    }
    condition {
      test     = "ArnLike"
      variable = "aws:SourceArn"
      values   = ["arn:${local.partition}:events:${local.region}:${local.account_id}:rule/*"]
    }
  }
  statement {
    sid       = "AllowRedriveOfThisAccount"
    actions   = ["sqs:SendMessage"]
    resources = [aws_sqs_queue.interruption[0].arn]
    principals {
      type        = "Service"
      identifiers = ["sqs.amazonaws.com"]
    }
    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account_id]
    }
  }
  statement {
    sid       = "DenyHTTP"
    effect    = "Deny"
    actions   = ["sqs:*"]
    resources = [aws_sqs_queue.interruption[0].arn]
    principals {
      type        = "*"
      identifiers = ["*"]
    }
    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_sqs_queue_policy" "interruption" {
  count     = var.create_queue ? 1 : 0
  queue_url = aws_sqs_queue.interruption[0].url
  policy    = data.aws_iam_policy_document.queue[0].json
}

resource "aws_cloudwatch_event_rule" "interruption" {
  for_each      = local.patterns
  name_prefix   = "tenure-${substr(each.key, 0, 30)}-"
  description   = local.rules[each.key].description
  event_pattern = each.value
}

resource "aws_cloudwatch_event_target" "interruption" {
  for_each  = aws_cloudwatch_event_rule.interruption
  rule      = each.value.name
  target_id = "TenureQueue"
  arn       = aws_sqs_queue.interruption[0].arn
}
