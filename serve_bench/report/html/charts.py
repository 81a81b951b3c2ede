"""The charts of an HTML page: Vega-Lite made of figures, the same kinds for all runs.

Rule: pure. Figures stay numbers and stand in `spec["data"]["values"]`; every chart is read without
colour too (shapes, labels, gaps), and at widths of 340 to 1,100 pixels. What they share is in
charts_parts.py, their look in charts_theme.py.
"""

from __future__ import annotations

from serve_bench.report.html.charts_intervals import intervals as intervals
from serve_bench.report.html.charts_intervals import ratios as ratios
from serve_bench.report.html.charts_lines import ladder as ladder
from serve_bench.report.html.charts_lines import over_time as over_time
from serve_bench.report.html.charts_lines import percentile_curves as percentile_curves
from serve_bench.report.html.charts_parts import Mark as Mark
from serve_bench.report.html.charts_parts import Point as Point
from serve_bench.report.html.charts_parts import Ratio as Ratio
from serve_bench.report.html.charts_parts import Share as Share
from serve_bench.report.html.charts_parts import Step as Step
from serve_bench.report.html.charts_stacked import stacked as stacked
