"""Screenshots of the Temporal UI for the docs: `make pictures` takes them of real workflows in a sandbox."""
