"""This machine.

- ``machine``: its clock, name, files and locks
- ``install``: the executables on it
"""
