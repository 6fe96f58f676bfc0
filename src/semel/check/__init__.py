"""Is that HTTP API really idempotent? A black-box check for services in any language.

`semel.check.runner` puts the probes of `semel.check.probes` to a service. It shares nothing
with the guard but `semel.core`, so that the judge can not have the faults of the judged.
"""
