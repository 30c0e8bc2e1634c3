"""The embedded engine: the part of DynamoDB's API that Headrace uses, on SQLite. Never shipped to Lambda.

`Engine` keeps the tables, `Client` and `Streams` ask it as boto3's clients do, `server` serves it over HTTP. Beside it,
`dynamodb_local` runs Amazon's own engine, with which tests compare this one."""
