"""The stitched answer: its compact storage, the Panel, and the tables made of it."""
