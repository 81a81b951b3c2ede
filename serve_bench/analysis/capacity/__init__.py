"""The capacity of a service at an SLO: search, estimate, and interval over launches. Pure."""
