"""The services beside EC2 that are not moto's, or that moto answers wrongly: pricing, EKS, zonal shift, SSM seeds, IAM
lists.
"""
