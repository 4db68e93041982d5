//! One transaction, tried again when another one met it.

use std::time::Duration;

use crate::domain::error::{Error, ErrorCode};

/// How often a transaction is begun before its conflict is handed to the caller.
const ATTEMPTS: u32 = 8;

/// Counts the attempts of one transaction.
#[derive(Debug, Default)]
pub(super) struct Conflicts(u32);

impl Conflicts {
    /// Whether the transaction that ended in `error` is begun once more.
    pub(super) fn allow(&mut self, error: &Error) -> bool {
        self.0 += 1;
        self.0 < ATTEMPTS && error.find(ErrorCode::SerializationConflict).is_some()
    }

    /// Steps aside for the other transaction: 1 ms, doubling.
    pub(super) async fn step_aside(&self) {
        tokio::time::sleep(Duration::from_millis(1 << self.0.min(6))).await;
    }
}

/// Runs `$body` in a transaction of `$store` and commits it. An error, by `?`,
/// undoes everything. The body runs again after a serialization conflict, so it
/// must not give away what it uses.
macro_rules! transaction {
    ($store:expr, |$tx:ident| $body:block) => {{
        let mut conflicts = $crate::market::tx::Conflicts::default();
        loop {
            let outcome: Result<_, $crate::domain::error::Error> = async {
                let mut opened = $store.begin().await?;
                let value = {
                    let $tx: &mut dyn $crate::ports::Tx = &mut *opened;
                    $body
                };
                opened.commit().await?;
                Ok(value)
            }
            .await;
            match outcome {
                Err(error) if conflicts.allow(&error) => conflicts.step_aside().await,
                outcome => break outcome,
            }
        }
    }};
}

pub(super) use transaction;
