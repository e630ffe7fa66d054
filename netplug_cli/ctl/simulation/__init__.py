"""Input and output of ``netplugctl simulate``.

``options`` and ``resources`` make the scenario. ``report`` renders the result for people, ``exports`` for programs;
``charts`` and ``svg`` draw its plot.
"""
