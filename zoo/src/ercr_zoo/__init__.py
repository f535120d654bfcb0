"""The small models of ercr, one folder each; `ercr.zoo` finds them by name. There is no code here."""
