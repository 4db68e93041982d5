//! What happened, counted: a run in which nothing happens shows nothing.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use portcullis::domain::{error::Error, id::OperationId, operation::OperationState};

use super::{
    seen::Seen,
    step::{Act, Step},
};

/// How often each thing happened.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<BTreeMap<String, u64>>);

impl Tally {
    pub(crate) fn count(&self, what: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    }

    /// What a step came to; none where the worker died in it.
    pub(crate) fn step(&self, step: &Step, outcome: Option<&Result<Option<OperationId>, Error>>) {
        let act = match step.act {
            Act::Command(command) => format!("{:?}", command.verb),
            act => format!("{act:?}"),
        };
        let act = act.split([' ', '(']).next().unwrap_or_default().to_lowercase();
        self.count(match outcome {
            None => "death".to_owned(),
            Some(Ok(_)) => format!("{act}: done"),
            Some(Err(error)) => format!("{act}: {}", error.innermost().code),
        });
    }

    /// What became of operations since an earlier reading.
    pub(crate) fn ends(&self, before: &Seen, now: &Seen) {
        for (id, operation) in &now.operations {
            let ended = !operation.is_active();
            if ended && before.operations.get(id).is_none_or(|earlier| earlier.is_active()) {
                let how = if operation.state == OperationState::Completed { "completed" } else { "failed" };
                self.count(format!("{} {how}", operation.kind.as_str()));
            }
        }
    }

    /// Shows everything, and refuses a run in which one of `expected` never happened.
    pub(crate) fn settle(&self, expected: &[&str]) {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        println!("{counts:#?}");
        for what in expected {
            assert!(counts.contains_key(*what), "{what:?} never happened in the whole run: {counts:#?}");
        }
    }
}
