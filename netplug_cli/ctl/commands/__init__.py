"""The commands of ``netplugctl``: one module per subject, with its reports. ``main`` loads the one that is named."""
