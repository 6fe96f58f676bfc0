"""What every web integration shares: the request, its body, and one guarded exchange."""
