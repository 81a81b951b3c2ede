"""What records say: statistics, warnings, comparison, history, verdicts. Pure."""
