"""From an image and a prompt to an explanation: the `Explainer`, bulk runs and streams."""
