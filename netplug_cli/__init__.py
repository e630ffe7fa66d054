"""Who is running, and how do they exit: the executables.

``cni`` is the plugin pair, ``ctl`` the person's tool
``netplugctl``, ``lab`` its demonstration; ``wiring`` opens what they act through, ``logs`` writes their lines.
"""
