"""Show what a bucket that learns its rate gets of a service, in virtual time.

``python -m tools.checks.learned_rate`` prints two tables and fails where a goal of
docs/pacing.md is missed: the speed after a 429 that measured nothing, relative to one
without a limit, and what a single user gets of a limit.
"""

from __future__ import annotations

import sys

from tests.pacing.test_learned_rate import SERVICES, STRICT
from tests.services.limits import Client, Returning, simulate


def main() -> None:
    """Print both tables."""
    missed = 0
    print("| served before the 429 | its seconds | in flight | speed after 2 s |")
    print("| --- | --- | --- | --- |")
    for served in (0, 1):
        for wait in (5, 40, 60):
            for in_flight in (1, 8):
                client = Client(Returning(served, wait), in_flight, 0.1)
                simulate(client.run(wait + 12))
                outcome = client.record.between(wait + 2, wait + 12)
                share = outcome.rate / (in_flight / 0.1)
                missed += share <= 0.95
                print(f"| {served} | {wait} | {in_flight} | {share:.1%} |")
    print("\n| service | limit | used | rejected |")
    print("| --- | --- | --- | --- |")
    for kind, make_service in SERVICES.items():
        for limit in (5, 25):
            jitter = 0.0 if kind in STRICT else 0.2
            client = Client(make_service(limit), 8, 0.1, jitter)
            simulate(client.run(300))
            outcome = client.record.between(100, 300)
            missed += outcome.rate <= 0.85 * limit or outcome.refused >= 0.02
            used = outcome.rate / limit
            print(f"| {kind} | {limit} | {used:.1%} | {outcome.refused:.2%} |")
    print(f"\n{missed} goals missed")
    sys.exit(missed > 0)


if __name__ == "__main__":
    main()
