"""The executables: what is started, and how it exits.

``cni`` is the pair of plugins, ``ctl`` the tool ``netplugctl``, ``lab`` its command ``lab``. ``wiring`` opens what they
act through. ``formatting`` renders values for people, ``logs`` writes log lines.
"""
