"""Everything that awaits for one question: publications, restarts, batches,
stitching.
"""
