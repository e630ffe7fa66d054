"""The CNI commands: what each does, in order."""
