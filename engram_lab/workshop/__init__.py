"""Checks for functions that learners write: compared with the library, told what differs."""
