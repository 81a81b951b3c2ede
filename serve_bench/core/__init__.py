"""What every part of the tool works with: records, suites, axes, plans, histograms, load
specifications, the document of a run. Pure: no clock, file, process or network.
"""
