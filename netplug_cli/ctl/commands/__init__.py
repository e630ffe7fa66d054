"""The commands, each module loaded when it is named: ``resources``, ``ipam``, ``version``, ``lab``, ``install``."""
