"""Foreign JSON and YAML to values: member paths, unknown keys, error texts."""
