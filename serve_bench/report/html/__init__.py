"""A document as one HTML page that needs nothing else: frame.py lays it out and brings the library
of its charts.

Rule: nothing here is imported by the other reports.
"""
