"""What passes use: finding patterns in graphs."""
