"""The shipped manifests: read as data, and copied into the package, the DaemonSet and the Helm chart."""
