"""The cluster: Nodes, their taints and records, Events, the Lease. The only importer of ``kubernetes``."""
