"""What services ask of the world, noun by noun. Each port has a memory and a DynamoDB form, and one contract suite
(tests/contract/ports) that both pass."""
