"""What `netplugctl simulate` prints: options, report, charts, exports."""
