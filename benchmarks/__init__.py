"""What is measured, and how to run it: `make bench`."""
