"""The load engine: sends requests to a URL from worker processes and accounts for each of them.

It knows HTTP and sockets, and nothing of Ray. Workers import this package too and must start fast,
so nothing is imported here: `driver.drive_load` runs a load.
"""
