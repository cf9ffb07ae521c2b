"""Checks of the AWS side of an installation, with reads, dry runs and simulations only."""
