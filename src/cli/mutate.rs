//! What every mutating command does: name the command once, repeat it harmlessly
//! where only the revision moved on, and wait until the operation has ended.

use std::time::{Duration, Instant};

use super::{
    args::WaitOptions,
    client::Client,
    exit::{Exit, Failure},
    output::Output,
    progress::{Progress, word},
};
use crate::{
    api::dto,
    ports::{IdSource as _, RandomIds},
};

/// Between two looks at an operation, at first and at most.
const FIRST_LOOK: Duration = Duration::from_millis(5);
const LATER_LOOKS: Duration = Duration::from_millis(500);

/// A fresh id for a command.
pub(super) fn client_request_id() -> Result<String, Failure> {
    Ok(format!("cli-{}", RandomIds.fresh()?))
}

/// Waits until `operation` has ended, unless the caller does not want to.
///
/// A failed operation is a failure with the code that says what exactly was wrong.
pub(super) async fn follow(
    client: &Client,
    output: Output,
    mut operation: dto::Operation,
    options: WaitOptions,
) -> Result<dto::Operation, Failure> {
    let id = operation.operation_id.clone();
    if options.no_wait {
        output.note(format!("accepted; follow it with: {}", look(client, &id)));
        return Ok(operation);
    }
    let progress = Progress::start(output, &word(&operation.kind));
    let started = Instant::now();
    let mut pause = FIRST_LOOK;
    while operation.is_active() {
        progress.show(&operation);
        if started.elapsed() >= Duration::from_secs(options.timeout) {
            return Err(still_running(client, &operation));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 3 / 2).min(LATER_LOOKS);
        operation = client.operation(&id).await.map_err(|failure| left_alone(client, &id, failure))?;
    }
    drop(progress);
    if operation.state == "failed" {
        return Err(failed(client, &operation));
    }
    Ok(operation)
}

fn look(client: &Client, id: &str) -> String {
    client.command(&format!("operations {id}"))
}

/// The daemon went away while the operation was waited for.
fn left_alone(client: &Client, id: &str, failure: Failure) -> Failure {
    if failure.exit != Exit::Unreachable {
        return failure;
    }
    let message = format!("operation {id} was accepted, but then {}", failure.message);
    Failure { message, ..failure }
        .with_hint(format!("it goes on when the daemon is back; follow it with: {}", look(client, id)))
}

fn still_running(client: &Client, operation: &dto::Operation) -> Failure {
    let last = match &operation.failure {
        Some(failure) => format!("; its last attempt ended with: {} [{}]", failure.message, failure.code),
        None => String::new(),
    };
    let message = format!(
        "the operation has not ended: {}, attempt {}{last}",
        word(&operation.stage),
        operation.attempt
    );
    Failure::new(Exit::Conflict, message)
        .with_hint(format!("it goes on by itself; follow it with: {}", look(client, &operation.operation_id)))
}

fn failed(client: &Client, operation: &dto::Operation) -> Failure {
    let outcome = operation.failure_code.clone().unwrap_or_default();
    match &operation.failure {
        Some(failure) => Failure::coded(failure.code.clone(), failure.message.clone(), false),
        None => Failure::coded(outcome, "the operation failed".to_owned(), false),
    }
    .with_hint(format!("more about it: {}", look(client, &operation.operation_id)))
}
