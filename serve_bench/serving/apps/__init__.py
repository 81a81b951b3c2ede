"""The Serve applications that a cluster child deploys.

Rule: these modules import only the standard library, ray, starlette with anyio, fastapi, numpy and
torch, because they run under the interpreter of the variant, which may hold another Ray and nothing
of ours.
Each offers `build(args) -> Application`, and `DEPLOYMENTS`, what a cell's settings apply to.
"""
