"""The composition roots, one per role. Only this package names a backend."""
