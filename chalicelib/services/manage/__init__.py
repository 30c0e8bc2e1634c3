"""What operators change: topics, groups, consumers, tokens, messages, dead letters, replays."""
