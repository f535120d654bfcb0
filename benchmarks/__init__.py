"""Measurements that are not tests: tables for the documentation, each by one command."""
