"""The embedded control plane: a small, honest subset of the Kubernetes API on SQLite."""
