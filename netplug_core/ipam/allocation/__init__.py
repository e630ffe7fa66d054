"""The decisions of assignment and release.

``request`` has what is wanted and what it gives. ``decide`` decides an assignment; ``specific`` is for one address by
name. ``context`` has what one decision knows. ``pools`` says which pools may serve, ``block_order`` in which order
blocks are tried, ``reservations`` which addresses are left out. ``acquire`` finds the blocks to take from;
``ownership`` is the table of what a block may become, and has the writes for it. ``claim``, ``ensure`` and
``relinquish`` are about blocks without addresses. ``release``, ``release_addresses`` and ``cooldown``
free addresses; ``owners`` looks one up. ``block_listing`` reads all blocks of a family, ``commit_sizes`` says how much
goes into one commit.
"""
