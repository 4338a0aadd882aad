"""HTTP servers: the page, and figures for Prometheus."""
