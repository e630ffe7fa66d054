"""This machine.

- ``machine``: its clock, name, files and locks
- ``log_file``: the rotated log
- ``install``: the executables on it
"""
