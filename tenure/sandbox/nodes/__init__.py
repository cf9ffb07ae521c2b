"""The node simulator: the behavior of EC2 instances in a Kubernetes cluster from boot to termination.

It watches running instances of the AWS stand-in, reads their user data, and registers the Nodes. Rules
(`fault_rules.py`) inject faults. kwok manages pods and Leases; conditions are set here.
"""
