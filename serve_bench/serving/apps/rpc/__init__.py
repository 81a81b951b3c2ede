"""One agent and its observers, over torch's RPC, Ray actors or a Serve handle: a program.

`python -m serve_bench_apps.rpc` holds one backend; the parent tells it which worlds to make and
when an episode begins. Rule: what the agent does and what an observer does stand here once
(agent.py); a backend only carries a call from one to the other. Figures go out as they
were measured: nothing is added up here.
"""
