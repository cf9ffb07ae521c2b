"""The AWS stand-in: one process that answers EC2, IAM, SSM, EKS, SQS, Pricing and what else a node autoscaler asks.

The EC2 launch path (fleets, launch templates, instances, images, types, prices) is our own state; networks, roles,
queues and parameters are moto's, run in the same process. `__main__` starts it; tests and the demo steer it through
`control`.
"""
