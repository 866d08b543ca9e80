"""Publications kept: in memory, in a folder that the processes of a machine share, or
in Redis.
"""
