"""The reference payment service: what a guarded API looks like, on any store.

A client posts a payment with an idempotency key; the row of the payment, the
claim and the stored answer are committed together. It is a small Starlette
application that demos, tests and benchmarks run, and an example to read:

* `settings`: what it is told, and the way of that to worker processes;
* `access`: who calls;
* `orders`: what a client may send, checked before the guard is asked;
* `payments`: the one table, for each kind of store;
* `faults`: how tests make it fail on purpose;
* `answers`: what they get; `doorway`: what stands outside the guard;
* `app`: routes and their order; `server`: the processes round it.
"""

from __future__ import annotations
