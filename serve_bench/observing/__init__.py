"""What is seen of a run beside its load: CPU, memory, GPU, Serve's metrics, py-spy, stacks."""
