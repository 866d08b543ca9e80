"""What it costs, as ratios against other ways in the same run: ``python -m benchmarks``
prints all tables.
"""
