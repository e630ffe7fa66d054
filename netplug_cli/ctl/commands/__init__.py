"""The commands. Each module is loaded when it is named: ``resources``, ``ipam``, ``version``, ``install``, ``node``."""
