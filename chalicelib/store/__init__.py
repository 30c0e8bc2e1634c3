"""The only package that knows DynamoDB. Start reading at `layout`; each module keeps one kind of thing."""
