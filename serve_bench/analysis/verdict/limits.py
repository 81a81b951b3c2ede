"""The thresholds of a verdict, each with its reason.

Rule: the verdict judges by these and by no other number. Shares are of 1 (a whole core, a whole
host, all slots); none is tuned to one app: they follow from what a core and a queue are. What they
are applied to is in __init__.py and case.py.
"""

from __future__ import annotations

from typing import Final

SATURATED: Final = 0.90
"""A process that uses so much of a core, or a host so much of all its cores, has nothing left: a
closed loop leaves gaps between requests, and readings are means over the whole trial. The proxy of
a no-op app stood at 96 % when 100 connections waited for it (README)."""

CERTAIN: Final = 0.95
"""From here on the gaps are within what sampling misses: no other cause is needed."""

NEAR: Final = 0.80
"""Between this and SATURATED something is the likeliest limit, though it still rests at times: with
random arrivals four requests are there on average at 80 % (u / (1 - u)), and nine at 90 %."""

IDLE: Final = 0.70
"""Nothing above this: no process and no core is a limit."""

RESTING: Final = 0.50
"""All below this while requests wait: what they wait for is no CPU."""

STARVED: Final = 0.20
"""Processes that wait in the run queue for a fifth of the time they want to run may be slowed down
by whoever else runs. Alone it says little: Ray's workers run at a low priority (nice 15) and wait
for 35 to 60 % of their demand on a host that is a third busy (planted cases). So it counts only
where the host is near its limit, and never against a process that uses a whole core."""

UNHINDERED: Final = 0.10
"""Server processes that wait for less than this share of their demand get the CPU they want,
however busy the host is: programs at a lower priority, say, make it look full."""

RESTLESS: Final = 0.80
"""A full host limits a row only where some process on the way of a request ran or waited for a CPU
at least so much of the time. In 6 records of waits beside other work it was 16 to 56 %, and 97 to
100 % in the 16 where the host did limit. By the busiest thread of each process, on a host of two
cores with ten to twenty processes ready to run: 13 to 45 % in 29 waits whose rate was within a
tenth of that on an idle host, 89 to 100 % in 12 where CPU was burnt. All threads of a process
together came to 26 to 100 % in the former: on such a host their sum tells nothing."""

GIL_CEILING: Final = 1.15
"""A Python process runs one thread of Python at a time, and some native threads of Ray beside it.
Above this its work is native (torch) and spread over cores: then its busiest thread tells."""

OTHERS: Final = 0.15
"""Processes that are not sampled are named when they use this share of all cores."""

GAP: Final = 0.20
"""One replica of several is a limit of its own when it is ahead of the mean of the others by this
share of a core. A router that picks by queue length keeps equal replicas closer together."""

FULL_SLOTS: Final = 1.10
"""More requests in flight than all replicas may take at once, by more than the error of Little's
law in a closed loop (analysis/checks.py lets 5 to 10 % pass): some wait for a slot."""

WELL_FULL: Final = 1.50
"""Half as many again as the slots: a queue that no error of counting explains."""

BATCH_FULL: Final = 0.90
"""Batches filled to more than this on average do not wait for their timeout."""

QUEUED_BATCHES: Final = 2.0
"""With full batches and twice a batch in flight at a replica, one is in work and one is waiting."""

WAIT_SHARE: Final = 0.50
"""A wait that is at least half of the latency is what the latency is made of."""

WAIT_MEAN: Final = 0.50
"""Requests that come evenly wait half of a batch's timeout on average: where the latency is less,
batches fill up before it."""

WAIT_MOST: Final = 0.80
"""A wait that leaves less than a fifth of the latency to everything else."""

ON_TIME: Final = 0.02
"""An open loop keeps up when no more than 2 % of its due requests were left over at the end beyond
what was left over at the beginning; a server that falls behind leaves more with every second."""

ALL_CONNECTIONS: Final = 0.95
"""An open loop that falls behind with so many of its connections in use has too few of them."""

FEW_CONNECTIONS: Final = 2
"""A closed loop with no more connections and nothing saturated is bound by latency, where one tells
that they hardly wait behind one another: two whose requests are no slower than alone, quicker than
any wait of the app, or at work on a CPU. With more, a wait that no process shows (a blocked loop, a
lock, a service outside) is as likely, unless a ladder tells."""

FAILED: Final = 0.50
"""Half of the requests failed: what limited the other half is of no use."""

SOME_FAILED: Final = 0.05
"""From here on failures make what was measured less sure: they cost, and are in no rate."""

DISAGREE: Final = 0.20
"""Processes that together used more than the host by this share of it: one of the two is wrong."""

WHOLE: Final = 0.80
"""A process seen for less than this share of the windows came or ended within them."""

STEP: Final = 2.0
"""Loads are compared where one has at least twice the clients of the other."""

FLAT: Final = 0.05
"""A throughput that gains less than this with STEP times the clients does not follow the load."""

FOLLOWS: Final = 0.80
"""A latency that grows by this share of what the clients grew by is a queue that grows."""

FEWEST_LOOKS: Final = 5
"""A replica that was looked at less often is not judged by what was seen in it."""

FEWEST_REQUESTS: Final = 5
"""A replica is called slow by no fewer requests, answered or in it: one alone may be a rare one."""

QUEUES: Final = 3.0
"""A request that takes so many times what it takes alone waits for others for most of its time."""

ALIKE: Final = 1.5
"""Up to here a request takes under the load what it takes alone."""

DIFFER: Final = 3.0
"""A replica whose requests take so many times the others', while it answers as many times fewer,
is slower than they are: one that only has more requests at once answers no fewer."""

SLOW_MS: Final = 10.0
"""One request at a time that takes longer waits for something of the app: Serve's own way took 0.3
to 5 ms on two cores (README)."""
