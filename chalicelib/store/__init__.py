"""The only room that knows DynamoDB. Start reading at `layout`."""
