"""Who may do what: policy documents, an evaluator of our own, and what each EC2 action asks permission for."""
