"""Services for tests. Take the first of these that can show what the test is about.

- The sandbox (`asyncfin.sandbox`) is what most tests want: the service of the spec, over loopback, with
  content from `tests.generate` (random, of real shape), `tests.handmade` (you know where each value is) or
  `tests.nights` (a series of publications). It publishes, refuses, drops and hangs on demand.
- `raw`: a server of bytes. Take it when HTTP itself is broken or late, or when the test says which
  response each request gets: `scripted(step, step)` by order, `judged(function)` by request. Bodies of
  single pages come from `tests.answers`. It runs in virtual time.
- `altering`: a proxy before the sandbox. Take it when a whole read must work against a service that
  differs in one way: `altered` changes bodies or statuses, `capped` refuses what exceeds its caps.
- `independent`: a service and an oracle that import neither the library nor its sandbox. Take it for what
  the spec means, where a shared misreading would pass every other test, and for random questions.
- `limits` is no server but a model of what one would serve and when: for buckets alone, in virtual time.

A new kind of fault is an argument of one of these, not another service.
"""
