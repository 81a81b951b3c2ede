"""A single load as JSON, CSV and in the published form: those of a run of rows."""

from __future__ import annotations

from serve_bench.benchmarks.micro.forms import classic_text as classic_text
from serve_bench.benchmarks.micro.forms import csv_text as csv_text
from serve_bench.benchmarks.micro.forms import json_text as json_text
