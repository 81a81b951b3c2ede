"""The command line. Flags come in here, exit codes go out here.

A command imports only typer and the frame of commands at its top: `serve-bench --help` starts fast,
and works without ray.
"""
