"""This machine.

- ``machine``: its clock, name, files and locks
- ``atomic_files``: how files are read and written; every backend and executable uses it
- ``release_records``: the files of release records
- ``log_file``: the rotated log
- ``install``: the executables on it
"""
