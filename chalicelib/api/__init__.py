"""HTTP only: request → command, result → JSON, error → status."""
