"""A cluster that serves one variant: the process that starts it, its driver, ports, strays."""
