"""What ``netplugctl support bundle`` sends to those who help.

- ``redaction``: what may be secret in documents and texts, and the same without it
- ``bundle``: the files of a bundle, made of its parts within limits of size and time, and its index
"""
