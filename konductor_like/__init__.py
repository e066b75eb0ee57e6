"""konductor-like: taints Kubernetes nodes whose kernel says the GPU is broken."""

__version__ = "0.1.0"
