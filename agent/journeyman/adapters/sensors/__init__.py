"""Sensors: one source of facts about the host a file, each behind the port `Sensor`.

Each reads through an injected root of the file system or command runner, so that the host of a bug report
can be laid out in a test.  They report what they see; what that means is decided in `core/gates`.
"""
