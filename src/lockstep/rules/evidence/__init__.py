"""What several rules see in a trace, each computed by one pure function."""
