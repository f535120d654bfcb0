"""From a dataset and a model to rows on disk: resumable, on one machine or many; tables are made in `report/`."""
