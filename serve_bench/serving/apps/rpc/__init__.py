"""One agent and its observers, over torch's RPC, Ray actors or a Serve handle: a program.

`python -m serve_bench_apps.rpc` holds one backend. The parent orders the worlds to make and starts
the episodes. Rule: agent and observer are written once (agent.py); a backend only carries the calls
between them, and is a separate module, since it imports what the other backends must not load.
Latencies are returned as measured: nothing is added up here.
"""
