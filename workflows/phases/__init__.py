"""One file per phase of a node's life, in the order of life."""
