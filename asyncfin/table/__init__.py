"""The stitched result: its compact storage, the Panel, and the tables made of it."""
