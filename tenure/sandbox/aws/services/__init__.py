"""Services other than EC2 that moto lacks or answers wrongly: pricing, EKS, zonal shift, SSM seeds, IAM lists."""
