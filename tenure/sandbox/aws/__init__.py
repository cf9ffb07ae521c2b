"""The AWS stand-in: one process with EC2, IAM, SSM, EKS, SQS, Pricing and other services that node autoscalers call.

The EC2 launch path (fleets, launch templates, instances, images, types, prices) has its own state. Networks, roles,
queues and parameters are moto's, in the same process. `__main__` starts the stand-in; tests and the demo control it
through `admin`.
"""
