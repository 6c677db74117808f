"""Keys: different contents never have one key, as long as the hash itself keeps streams apart."""
