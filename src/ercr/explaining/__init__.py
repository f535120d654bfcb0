"""From an image and a prompt to an explanation: the front door, bulk runs and streams."""
