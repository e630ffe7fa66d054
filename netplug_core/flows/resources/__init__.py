"""What changes and reads resources: create, apply, replace, label, the cluster's own settings."""
