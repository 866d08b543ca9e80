"""What telemetry's tests need."""

from tests.conftest import ignored_without

collect_ignore_glob = ignored_without("telemetry")
