"""What is seen of a run during its load: CPU, memory, GPU, Serve's metrics, py-spy, stacks."""
