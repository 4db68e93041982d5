//! The HTTP API in this process, over a market and a host that answer as told:
//! who is let in, what is refused, what is shown, what is hidden.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod access;
mod bodies;
mod calls;
mod errors;
mod fakes;
mod market;
mod serving;
