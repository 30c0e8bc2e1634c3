"""The only package that knows DynamoDB. Start reading at `layout`; each module implements one protocol of `ports`.

A method without a docstring does what the port's docstring says.
"""
