"""An asyncio client for a financial dataset service."""
