"""What surrounds the functions on AWS, as CloudFormation resources. Shares no code with `chalicelib`."""
