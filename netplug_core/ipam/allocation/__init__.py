"""The decisions of assignment and release.

``request`` has what is wanted and what it gives. ``decide`` decides an assignment; ``specific`` is for one address by
name. ``context`` has what one decision knows, and how much goes into one commit. ``pools`` says which pools may serve,
in which order their blocks are tried, and which addresses are left out. ``acquire`` takes from the claimant's own
blocks and the first new ones, which must not overlap what is stored, ``borrow`` from more new ones, unused ones and
those of other owners. ``ownership`` is the table of what a block may become, and has the writes for it. ``affinities``
is about blocks, whatever addresses they hold. ``release`` frees addresses, and looks up who holds one.
"""
