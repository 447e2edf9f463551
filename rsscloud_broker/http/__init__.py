"""The HTTP server: sites, limits, connections, listening, requests and answers."""
