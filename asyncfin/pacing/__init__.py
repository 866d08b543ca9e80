"""The rate of requests: one bucket, and the buckets that processes and machines
share.
"""
