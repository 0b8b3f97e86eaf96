"""What `verify` checks, one file each."""
