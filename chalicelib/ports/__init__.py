"""Interfaces of the services to storage, clock and network, one module each. Each port has a memory and a DynamoDB
form, and one contract suite (tests/contract/ports) that both pass."""
