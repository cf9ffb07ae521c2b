"""Checks of the AWS side of an installation. Nothing here changes anything: reads, dry runs and simulations only."""
