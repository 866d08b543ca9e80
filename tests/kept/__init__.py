"""What each version of the library keeps on a disk, as that version wrote it: every later one reads it.

`python -m tests.kept` writes the folder of this version again, until the version has a tag.
"""
