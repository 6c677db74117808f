"""What a finding's screen shows of each depth."""
