"""What is answered over HTTP: the page, and figures for Prometheus."""
