"""Reading and writing files that others own or wait for; knows nothing of explanations."""
