"""The base of every part of the tool: records, axes, plans, histograms, what a load is.

Pure: no clock, file, process or network.
"""
