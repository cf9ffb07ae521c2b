"""The controller: caches of the cluster, signals to workflows, planning and disruption, in the process that watches."""
