"""The documents' screenshots of Temporal's UI: `make pictures` takes them anew, of real workflows in a sandbox."""
