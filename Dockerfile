# The tool with the packages of requirements.lock, for a host whose Python is not to be touched:
#
#   docker build -t serve-bench .
#   docker run --rm --init --shm-size=4g --cap-add=SYS_PTRACE -v "$PWD/results:/work/results" \
#       serve-bench micro --quick
#
# SYS_PTRACE is for py-spy, --shm-size for Ray's object store; figures are those of the container's
# host. A service outside of it: --network=host.

ARG PYTHON=3.11
FROM python:${PYTHON}-slim

WORKDIR /opt/serve-bench
COPY requirements.lock pyproject.toml README.md LICENSE ./
RUN python -m pip install --no-cache-dir -r requirements.lock
COPY serve_bench serve_bench
COPY scenarios scenarios
COPY profiles profiles
RUN python -m pip install --no-cache-dir --no-deps --no-build-isolation .

WORKDIR /work
ENTRYPOINT ["serve-bench"]
CMD ["--help"]
