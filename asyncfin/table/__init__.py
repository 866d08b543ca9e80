"""The stitched answer, and the tables made of it."""
