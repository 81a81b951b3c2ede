"""Load from every node of a Ray cluster: one load actor on a node, all measured together.

The parent (crew.py) imports no ray. It starts the program `python -m serve_bench.nodes`, which
joins the cluster as a driver, puts an actor (actors.py) on each node and passes their answers on.
The program and the actors may run where only Ray is installed. core/nodes.py computes the share of
a node.
"""
