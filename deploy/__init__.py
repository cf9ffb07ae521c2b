"""What is installed in a cluster and in an AWS account; package data."""
