//! What the sequences found, each as a story of its own.

use std::sync::atomic::Ordering;

use portcullis::{
    domain::{authorization::Resolution, error::ErrorCode},
    market::authorize::BeginAuthorization,
    ports::ReplacementPolicy,
};

use crate::market::world::{World, ada, altered, release};

/// A connector that is authorized here.
fn mail(version: &str) -> portcullis::domain::release::Release {
    altered("mail", version, |manifest| manifest["authorizationKind"] = "oauth2".into())
}

#[tokio::test]
async fn an_attempt_ends_when_its_connector_is_taken_off_the_catalog() {
    for cannot_cancel in [false, true] {
        let world = World::new().await;
        world.authorization.cannot_cancel.store(cannot_cancel, Ordering::SeqCst);
        world.offer(&[mail("1.0.0"), release("echo", "1.0.0")]).await;
        let command = world.command("begin", "mail").await;
        let begin =
            BeginAuthorization { command, replacement: ReplacementPolicy::Keep, after_step: 0, secret: None };
        let begun = world.app.begin_authorization(begin).await.expect("a link");
        world.offer(&[release("echo", "1.0.0")]).await;

        let round = world.app.reconcile_authorizations(&ada()).await.expect("a round");
        assert!(round.intents.is_empty() && round.failures.is_empty(), "{:?}", round.failures);
        let stored = world.store.operation(&begun.operation.operation_id).await.expect("a reading");
        let session = stored.and_then(|stored| stored.execution.authorization_session).expect("a receipt");
        assert_eq!(session.resolution, Some(Resolution::Superseded));
        assert_eq!(world.authorization.cancelled.lock().len(), usize::from(!cannot_cancel));
        assert!(world.authorization.observed.lock().is_empty());
    }
}

#[tokio::test]
async fn a_runtime_that_cannot_be_shown_is_not_switched() {
    let world = World::with_echo().await;
    world.offer(&[release("other", "1.0.0")]).await;
    let command = world.command("off", "echo").await;
    world.refused(world.app.set_runtime_enabled(command, false), ErrorCode::NotFound, false).await;
}
