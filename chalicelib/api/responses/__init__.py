"""What calls answer, a file per noun: its types, which openapi.json and mypy read, and how they are made of our things.

None of these files imports `annotations` from `__future__`: kept as texts, the types of a TypedDict take six times as
long to import.
"""
