"""Compares a service with the spec, request by request, and reports what differs."""
