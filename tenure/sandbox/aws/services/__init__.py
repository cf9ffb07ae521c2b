"""Other services that moto lacks or implements incorrectly: pricing, EKS, zonal shift, SSM parameters, IAM lists."""
