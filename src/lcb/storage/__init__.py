"""Files and databases: event tables, log folders, model folders, and the event store of the service."""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
