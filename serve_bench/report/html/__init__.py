"""A run as one HTML page that needs nothing else: parts.py says what it is made of, sheets.py which
kind of run fills them how, frame.py lays them out, bundle.py brings the library of its charts.

Rule: nothing here is imported by the other reports.
"""
