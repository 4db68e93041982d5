//! Values and state machines, in the words of the specification's scenarios
//! (core.md, J.10) and of the design.

mod installation;
mod manifest;
mod release;
mod values;
