//! The command line: a file a command family.
//!
//! Every command but `serve`, `connector`, `catalog`, `store` and the
//! hidden `compile-component` talks to a running daemon
//! through its public API, as any other program would. What lives here: the
//! grammar (`args`), what a command asks and in which order, what people see
//! (`output`, `progress`), and how the process ends (`exit`). What may not:
//! a way around the API.

mod access;
mod args;
mod call;
mod capabilities;
pub mod catalog;
mod client;
pub mod connector;
mod demo;
mod exit;
mod install;
mod list;
mod mutate;
mod operations;
mod output;
mod progress;
mod refresh;
pub mod report;
mod routes;
mod serve;
mod show;
mod standing;
mod store;
mod switch;
mod uninstall;

use std::process::ExitCode;

pub use exit::{Exit, exit_of};

use crate::{domain::error::Error, ports::SystemClock, sandbox};

use args::{Arguments, Command};
use client::Client;
use exit::Failure;
use output::Output;
use report::Report;

/// Runs the command that the process was started with.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::of_this_process();
    let output = Output::new(arguments.client.json);
    match run(arguments, output) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output.failure(&failure);
            failure.exit.into()
        }
    }
}

fn run(arguments: Arguments, output: Output) -> Result<Exit, Failure> {
    // TLS needs one provider a process; a second call is refused, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let done = match arguments.command {
        Command::Serve(args) => serve::run(*args),
        Command::Demo(options) => block_on(demo::run(options, output)),
        Command::Connector(command) => local(output, connector::run(command, &SystemClock)),
        Command::Catalog(command) => local(output, catalog::run(command)),
        Command::Store(command) => return store::run(command, output),
        Command::CompileComponent(options) => Ok(sandbox::compile_component(
            &options.component,
            &options.digest,
            &options.engine,
            &options.out,
        )?),
        Command::Client(command) => {
            let client = Client::find(&arguments.client)?;
            block_on(command.run(&client, output))
        }
    };
    done.map(|()| Exit::Ok)
}

/// Prints what a command answers that needs no daemon.
fn local(output: Output, report: Result<Report, Error>) -> Result<(), Failure> {
    let report = report?;
    output.document(&report.json);
    output.line(report.human);
    Ok(())
}

/// Runs on one thread: a client waits more than it works.
fn block_on<F: Future<Output = Result<(), Failure>>>(work: F) -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|cause| Failure::unexpected(format!("the runtime does not start: {cause}")))?
        .block_on(work)
}
