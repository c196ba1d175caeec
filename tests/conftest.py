from bus.testing import nats_server, run

__all__ = ["nats_server", "run"]
