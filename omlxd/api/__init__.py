"""HTTP for clients: routes, dialects, access."""
