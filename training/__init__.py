"""How the small models that come with the package were made; the package itself never imports this."""
