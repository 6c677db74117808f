"""What commands conclude, in a sentence each: pure functions of what was run and found."""
