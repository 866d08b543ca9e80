"""One request and its response."""
