"""The one JSON of stored kinds."""
