def openapi_document(base_url): return {}
