"""This machine.

``machine`` has its clock, name, files and locks; ``install`` puts the executables on it.
"""
