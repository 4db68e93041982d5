//! The HTTP API in this process, over a market and a host that answer as told:
//! who is let in, what is refused, what is shown, what is hidden.

mod access;
mod bodies;
mod calls;
mod errors;
mod fakes;
mod market;
mod serving;
