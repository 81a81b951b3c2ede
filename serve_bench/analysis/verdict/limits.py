"""The thresholds of a verdict, each with its reason.

Rule: the verdict uses no other number. Shares are of 1 (a whole core, a whole host, all slots).
None is tuned to one app: they follow from the nature of a core and a queue. __init__.py and case.py
apply them.
"""

from __future__ import annotations

from typing import Final

SATURATED: Final = 0.90
"""A process with this share of a core, or a host with this share of all cores, has nothing left: a
closed loop has gaps between requests, and readings are means over the whole trial. The proxy of a
no-op app was at 96 % while 100 connections waited for it (README)."""

CERTAIN: Final = 0.95
"""Above this the gaps are within the error of sampling: no other cause is needed."""

NEAR: Final = 0.80
"""Between this and SATURATED a part is the likeliest limit, though it is idle at times: with random
arrivals a queue has four requests on average at 80 % (u / (1 - u)), and nine at 90 %."""

IDLE: Final = 0.70
"""If nothing is above this, no process and no core is a limit."""

RESTING: Final = 0.50
"""If all is below this while requests wait, they do not wait for a CPU."""

STARVED: Final = 0.20
"""Processes that wait in the run queue for a fifth of their demand may be slowed down by others.
Alone it means little: Ray's workers run at a low priority (nice 15) and wait for 35 to 60 % of
their demand on a host that is a third busy (planted cases). So it counts only if the host is near
its limit, and never against a process that uses a whole core."""

UNHINDERED: Final = 0.10
"""Server processes that wait for less than this share of their demand get the CPU they need, even
on a busy host: programs at a lower priority may fill it."""

RESTLESS: Final = 0.80
"""A full host limits a row only if some process on the way of a request ran or waited for a CPU for
at least this share of time. It was 16 to 56 % in 6 records of waits beside other work, and 97 to
100 % in 16 in which the host was the limit. By the busiest thread of each process, on two cores
with ten to twenty processes ready to run: 13 to 45 % in 29 waits with a rate within a tenth of that
on an idle host, 89 to 100 % in 12 that burnt CPU. The sum over all threads of a process was 26 to
100 % in the former: on such a host it means nothing."""

THROTTLED: Final = 50.0
"""Percent of the periods of a CPU quota. Used up in more of them, it stops all that computes."""

GIL_CEILING: Final = 1.15
"""A Python process runs one thread of Python at a time, and some native threads of Ray beside it.
Above this its work is native (torch) and spread over cores: then its busiest thread counts."""

ITS_THREAD: Final = 0.5
"""The least share of the CPU of a process that its busiest thread has where that thread speaks for
it. Threads of a sync method end with their requests, so that none is there at both readings: of a
replica at 68 % of a core the busiest one that was left had 1.8 % (examples/own_app, 2 replicas on 2
cores, 2026-11-26). One that computes all the time has nearly all."""

OTHERS: Final = 0.15
"""Other processes, which are not sampled, are reported from this share of all cores on."""

GAP: Final = 0.20
"""One replica of several is a limit by itself if it is ahead of the mean of the others by this
share of a core. A router that picks by queue length keeps equal replicas closer together."""

FULL_SLOTS: Final = 1.10
"""More requests in flight than all replicas may take at once, by more than the error of Little's
law in a closed loop (analysis/checks.py lets 5 to 10 % pass): some wait for a slot."""

WELL_FULL: Final = 1.50
"""With half as many requests again as slots, the queue is no error of counting."""

HAND_OVER_S: Final = 0.025 / 3
"""A slot that is idle for longer between requests that wait for it waits for Serve's router: of its
two tasks a replica, each of which tries once in 25 ms at most (ROUTER_RETRY_INITIAL_BACKOFF_S, Ray
2.60), the earlier one comes after a third of that, on average."""

SERVE_THREADS: Final = 32
"""The most threads of the pool that Serve makes for a replica (Ray 2.60, replica.py)."""

BATCH_FULL: Final = 0.90
"""Batches filled to more than this on average do not wait for their timeout."""

QUEUED_BATCHES: Final = 2.0
"""With full batches and twice a batch in flight at a replica, one is in work and one is waiting."""

WAIT_SHARE: Final = 0.50
"""A wait of at least half of the latency explains it."""

WAIT_MEAN: Final = 0.50
"""Evenly spaced requests wait half of a batch's timeout on average: with a lower latency, batches
fill up before."""

WAIT_MOST: Final = 0.80
"""Above this a wait leaves less than a fifth of the latency to everything else."""

FEW_CONNECTIONS: Final = 2
"""A closed loop with at most this many connections and nothing saturated is bound by latency, if
they hardly wait for one another: two whose requests are no slower than alone, quicker than any wait
of the app, or busy on a CPU. With more, a wait that no process shows is as likely, unless a ladder
excludes it."""

FAILED: Final = 0.50
"""If half of the requests failed, the limit of the other half is of no use."""

SOME_FAILED: Final = 0.05
"""From this share on, failures reduce the confidence: they cost CPU, but are in no rate."""

DISAGREE: Final = 0.20
"""If processes together used more than the host by this share of it, one of the two is wrong."""

WHOLE: Final = 0.80
"""A process seen for less than this share of the windows started or ended within them."""

STEP: Final = 2.0
"""Loads are compared if one has at least twice the clients of the other."""

FLAT: Final = 0.05
"""A throughput that gains less than this with STEP times the clients does not follow the load."""

FOLLOWS: Final = 0.80
"""A latency that grows by this share of what the clients grew by is a queue that grows."""

FEWEST_LOOKS: Final = 5
"""A replica with fewer looks is not judged by them."""

FEWEST_REQUESTS: Final = 5
"""Fewest requests, answered or in work, to call a replica slow: one may be an exception."""

QUEUES: Final = 3.0
"""A request with this multiple of its time alone mostly waits for others."""

ALIKE: Final = 1.5
"""Up to this multiple a request takes as long under the load as alone, or as long as a timer."""

DIFFER: Final = 3.0
"""A replica is slower than the others if its requests take this multiple of theirs, and it answers
that many times fewer: one that only has more requests at once answers no fewer."""

SEVERAL: Final = 1.5
"""With at least this many calls of a deployment a request makes several: the mean over requests."""

IN_SEQUENCE: Final = 1.05
"""Calls of which on average no more are in work at once follow one another: in sequence it is 1.00,
of two that overlap by half of their time 1.3."""

SLOW_MS: Final = 10.0
"""A single request at a time that takes longer waits for the app: Serve's own code took 0.3 to 5 ms
on two cores (README)."""

TRACED_MOST: Final = 0.5
"""A wait that traced requests spend more than half of their time in is what they wait for: it was
measured, and nothing else can hold as much."""

SHAPED: Final = 200
"""With fewer latencies their shape is not judged (evidence/verdicts.md, timers)."""

EVEN: Final = 0.08
"""Latencies lie evenly if each percentile is so near the line from the 5th to the 95th, as a share
of its rise: what else runs delays some and moves the ends. And if the middle half of them takes
half of that rise or more: 0.56 of it in an even spread, 0.43 in a triangular one."""
