"""The capacity of a service at an SLO: the search on a launch, its estimate, and the interval over
launches. Pure.
"""
