"""IAM authorization: policy documents, an evaluator, and the permissions that each EC2 action requires."""
