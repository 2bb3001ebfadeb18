"""Farandole for Python: `farandole.record` and the backend "farandole" of torch.distributed. See docs/python.md."""
