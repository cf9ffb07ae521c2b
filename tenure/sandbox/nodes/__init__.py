"""The node simulator: plays what an EC2 instance of a Kubernetes cluster does from its boot to its end.

It sees instances run in the AWS stand-in, reads the user data of each, and registers the Node that the user data asks
for. Rules (`rules.py`) make instances misbehave. Pods and Leases are kwok's; conditions are decided here.
"""
