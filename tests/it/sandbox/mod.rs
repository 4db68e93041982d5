//! The sandbox: what runs, what is refused, and that nothing of a fenced route acts.

mod activation;
mod calls;
mod cheating;
mod compile;
mod compiled;
mod fences;
mod hoarding;
mod network;
mod table;
mod world;
