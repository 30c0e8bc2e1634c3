"""From the journal to the archive's tables, and the proof that nothing is missing."""
