//! Compiled components: which files with native code this daemon wrote.

use std::sync::Arc;

use super::{StoreFactory, samples::open};
use crate::{
    domain::{digest::Sha256Digest, error::Error},
    ports::CompiledComponent,
};

fn note(component: &str, engine: &str, file: &str) -> CompiledComponent {
    CompiledComponent {
        component_digest: Sha256Digest::of(component.as_bytes()),
        engine_fingerprint: engine.to_owned(),
        file_digest: Sha256Digest::of(file.as_bytes()),
    }
}

pub(super) async fn a_note_is_kept_by_component_and_engine(
    factory: Arc<dyn StoreFactory>,
) -> Result<(), Error> {
    let ledger = open(&factory).await?.ledger;
    let notes = [note("a", "engine 1", "x"), note("a", "engine 2", "y"), note("b", "engine 1", "z")];
    for note in &notes {
        ledger.record_compiled(note).await?;
    }
    let again = open(&factory).await?.ledger;
    for note in &notes {
        let found = again.compiled(&note.component_digest, &note.engine_fingerprint).await?;
        assert_eq!(found.as_ref(), Some(note));
    }
    assert_eq!(again.compiled(&Sha256Digest::of(b"b"), "engine 2").await?, None);
    Ok(())
}

pub(super) async fn a_newer_note_replaces_the_older(factory: Arc<dyn StoreFactory>) -> Result<(), Error> {
    let ledger = open(&factory).await?.ledger;
    ledger.record_compiled(&note("a", "engine", "old")).await?;
    let newer = note("a", "engine", "new");
    ledger.record_compiled(&newer).await?;
    assert_eq!(ledger.compiled(&newer.component_digest, "engine").await?, Some(newer));
    Ok(())
}
