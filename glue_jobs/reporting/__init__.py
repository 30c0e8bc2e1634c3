"""What went through, as tables and a page."""
