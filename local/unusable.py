"""What a command of this folder cannot use as it is: its options, its token, or what it needs from elsewhere."""


class Unusable(Exception):
    """The command cannot work like this; the text says what to change."""
