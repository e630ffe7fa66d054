"""Which datastore, and how to reach it."""
